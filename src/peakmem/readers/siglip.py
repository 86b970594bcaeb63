"""Decoders behind SigLIP's tower: config.json fields -> keyword arguments of `Model`."""

from __future__ import annotations

from math import isqrt

from peakmem.errors import Impossible
from peakmem.model import Model
from peakmem.readers import decoders
from peakmem.readers.defaults_towers import SIGLIP_VISION
from peakmem.readers.fields import Fields
from peakmem.readers.shared import Sizes
from peakmem.readers.towers import clip_vision, part
from peakmem.readers.vision_language import together


def gemma3(f: Fields) -> Sizes:
    """Gemma 3 with its tower, whose patches are averaged to mm_tokens_per_image tokens."""
    from peakmem.readers.defaults import ALIASES, DEFAULTS

    given = part(f, "text_config", DEFAULTS["gemma3_text"])
    inner = Fields(given.file, given.given, DEFAULTS["gemma3_text"], ALIASES.get("gemma3_text"))
    inner.notes, inner.assumed, inner.place = f.notes, f.assumed, given.place
    text = decoders.gemma3(inner)
    image = siglip_vision(part(f, "vision_config", SIGLIP_VISION))
    tokens, patches = f.count("mm_tokens_per_image"), image.image // image.patch
    if isqrt(tokens) ** 2 != tokens or patches % isqrt(tokens):
        raise Impossible(f"{f.file}: {f.said('mm_tokens_per_image')}: the tower sees {patches} × {patches} patches; "
                         "give the square of a number that divides them")
    image = image.changed(sizes={**image.sizes, "gt": isqrt(tokens)})
    switches = text["switches"] | {"sees", "two_way"}
    return together(f, text | {"tied": f.flag("tie_word_embeddings"), "switches": switches}, image)


def siglip_vision(f: Fields) -> Model:
    """SigLIP's tower, without a head that pools; gi: patches of a side."""
    if f.flag("vision_use_head"):
        raise Impossible(f"{f.file}: {f.said('vision_use_head')}: a head that pools, which peakmem does not know")
    f.used |= {"model_type"}
    image = clip_vision(f)
    return image.changed(sizes={"gi": image.image // image.patch})
