"""SigLIP, and decoders behind its tower: config.json fields -> keyword arguments of `Model`."""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt
from typing import Any

from peakmem.errors import Impossible, UnknownName
from peakmem.model import Model
from peakmem.readers import decoders
from peakmem.readers.defaults_towers import PALIGEMMA_TEXT, PALIGEMMA_VISION, SIGLIP_TEXT, SIGLIP_VISION
from peakmem.readers.fields import Fields
from peakmem.readers.shared import Sizes, head_size, layers
from peakmem.readers.towers import clip_vision, part
from peakmem.readers.vision_language import together


def gemma3(f: Fields) -> Sizes:
    """Gemma 3 with its tower, whose patches are averaged to mm_tokens_per_image tokens."""
    text = decoders.gemma3(text_part(f, "gemma3_text", {}))
    image = siglip_vision(part(f, "vision_config", SIGLIP_VISION))
    tokens, patches = f.count("mm_tokens_per_image"), image.image // image.patch
    if isqrt(tokens) ** 2 != tokens or patches % isqrt(tokens):
        raise Impossible(f"{f.file}: {f.said('mm_tokens_per_image')}: the tower sees {patches} × {patches} patches; "
                         "give the square of a number that divides them")
    image = image.changed(sizes={**image.sizes, "gt": isqrt(tokens)})
    switches = text["switches"] | {"sees", "both_ways"}
    return together(f, text | {"tied": f.flag("tie_word_embeddings"), "switches": switches}, image)


def siglip(f: Fields) -> Sizes:
    """SigLIP: a tower for pictures, which runs first, and one for captions, both of one width at their ends."""
    text, image = part(f, "text_config", SIGLIP_TEXT), siglip_vision(part(f, "vision_config", SIGLIP_VISION), True)
    text.used |= {"model_type"}
    heads, count, hidden = text.count("num_attention_heads"), layers(text), text.count("hidden_size")
    width = hidden if text.value("projection_size") is None else text.count("projection_size")
    if width != image.hidden:
        raise Impossible(f"{f.file}: captions end as {width} numbers, pictures as {image.hidden}: give projection_size "
                         f"{image.hidden} in text_config")
    return {
        "layers": image.layers + count, "layer_kinds": ("image",) * image.layers + ("text",) * count,
        "hidden": hidden, "heads": heads, "kv_heads": heads, "head_size": head_size(text, own=False),
        "feed_forward": text.count("intermediate_size"), "vocabulary": text.count("vocab_size"),
        "positions": text.count("max_position_embeddings"), "longest": text.count("max_position_embeddings"),
        "activation": text.activation("hidden_act"), "attention_dropout": text.fraction("attention_dropout"),
        "image": image.image, "patch": image.patch, "channels": image.channels, "towers": (image,),
        "switches": frozenset(), "sizes": {"D": width},
    }


def siglip_vision(f: Fields, head: bool = False) -> Model:
    """SigLIP's tower, with a head that pools or without; gi: patches of a side."""
    if f.flag("vision_use_head") != head:
        if head:
            raise Impossible(f"{f.file}: {f.said('vision_use_head')}: without a head that pools there is nothing to "
                             "compare with a caption")
        raise Impossible(f"{f.file}: {f.said('vision_use_head')}: a head that pools, which peakmem does not know")
    f.used |= {"model_type"}
    image = clip_vision(f)
    return image.changed(sizes={"gi": image.image // image.patch})


def paligemma(f: Fields) -> Sizes:
    """PaliGemma 1 and 2: the decoder of Gemma 1 or 2, a token for each patch."""
    whole = f.value("text_config") is None
    kind = "gemma" if whole else part(f, "text_config", {}).value("model_type") or "gemma"
    if kind not in ("gemma", "gemma2"):
        raise UnknownName(f"text model in {f.file}:", str(kind), ("gemma", "gemma2"))
    inner = text_part(f, kind, PALIGEMMA_TEXT if whole else {})
    inner.used |= {"model_type"}
    text = (decoders.gemma if kind == "gemma" else decoders.gemma2)(inner)
    if f.count("projection_dim") != text["hidden"]:
        raise Impossible(f"{f.file}: {f.said('projection_dim')} is not the text's hidden_size, {text['hidden']}")
    image = siglip_vision(part(f, "vision_config", PALIGEMMA_VISION if f.value("vision_config") is None
                               else SIGLIP_VISION))
    switches = text["switches"] | {"sees", "both_ways"}
    return together(f, text | {"tied": f.flag("tie_word_embeddings"), "switches": switches}, image)


def text_part(f: Fields, kind: str, other: Mapping[str, Any]) -> Fields:
    """The decoder's fields, with the defaults of its class, some of them others."""
    from peakmem.readers.defaults import ALIASES, DEFAULTS

    given = part(f, "text_config", DEFAULTS[kind])
    inner = Fields(given.file, given.given, {**DEFAULTS[kind], **other}, ALIASES.get(kind))
    inner.notes, inner.assumed, inner.place = f.notes, f.assumed, given.place
    return inner
