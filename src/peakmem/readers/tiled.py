"""Decoders behind a tower that looks at tiles: config.json fields -> keyword arguments of `Model`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil
from typing import Any

from peakmem.errors import Impossible, UnknownName
from peakmem.model import Model
from peakmem.readers import decoders
from peakmem.readers.fields import Fields
from peakmem.readers.shared import Sizes, head_size, layers, side
from peakmem.readers.towers import clip_vision, part
from peakmem.readers.vision_language import together

TEXTS: Mapping[str, Callable[[Fields], Sizes]] = {
    "llama": decoders.llama, "mistral": decoders.mistral, "qwen2": decoders.qwen2, "qwen3": decoders.qwen3}
"""Decoders of Llama's shape, which all run as Llama does."""

INTERNVL_VISION: Mapping[str, Any] = {
    "hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "attention_bias": False,
    "use_qk_norm": False, "intermediate_size": 4096, "hidden_act": "gelu", "hidden_dropout_prob": 0.0,
    "attention_dropout": 0.0, "projection_dropout": 0.0, "norm_type": "layer_norm", "image_size": 448,
    "patch_size": 14, "num_channels": 3, "use_mask_token": False, "use_absolute_position_embeddings": True,
    "use_mean_pooling": True}
IDEFICS3_VISION: Mapping[str, Any] = {
    "hidden_size": 1152, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 16,
    "num_channels": 3, "image_size": 224, "patch_size": 32, "hidden_act": "gelu_pytorch_tanh",
    "attention_dropout": 0.0}


def text_of(f: Fields, usual: str, other: Mapping[str, Any] | None = None,
            more: Mapping[str, Callable[[Fields], Sizes]] | None = None) -> Sizes:
    """The decoder, of one of the families in `TEXTS`, or of `more` of them. usual: that of a file that names none;
    other: its defaults where the file has no decoder's part at all. Errors: UnknownName."""
    from peakmem.readers.defaults import ALIASES, DEFAULTS

    given = part(f, "text_config", {})
    kind = given.value("model_type") or usual
    known = {**TEXTS, **(more or {})}
    if kind not in known:
        raise UnknownName(f"text model in {f.file}:", str(kind), known)
    inner = Fields(given.file, given.given, {**DEFAULTS[kind], **(other or {})}, ALIASES.get(kind))
    inner.notes, inner.assumed, inner.place = f.notes, f.assumed, given.place
    return known[kind](inner)


def tower_kind(f: Fields, pictures: Fields, known: str) -> None:
    """Errors: UnknownName for a tower of another family."""
    if (kind := pictures.value("model_type") or known) != known:
        raise UnknownName(f"image tower in {f.file}:", str(kind), (known,))


def internvl(f: Fields) -> Sizes:
    """InternVL: a ViT with scaled branches, whose squares of patches are merged; the last hidden states are read."""
    text = text_of(f, "qwen2")
    pictures = part(f, "vision_config", INTERNVL_VISION)
    tower_kind(f, pictures, "internvl_vision")
    if f.value("vision_feature_layer") != -1 or f.value("vision_feature_select_strategy") != "default":
        raise Impossible(f"{f.file}: {f.said('vision_feature_layer')}, {f.said('vision_feature_select_strategy')}: "
                         "peakmem knows -1 and default")
    ratio = f.value("downsample_ratio")
    merged = round(1 / ratio) if isinstance(ratio, (int, float)) and 0 < ratio <= 1 else 0
    if not merged or merged * ratio != 1:
        raise f.wrong("downsample_ratio", "give 1 divided by a whole number")
    image = internvl_tower(pictures, merged)
    switches = seeing(f, image.image // image.patch, merged) | {f"projector {f.activation('projector_hidden_act')}"}
    f.used.add("image_seq_length")
    return together(f, text | {"tied": f.flag("tie_word_embeddings"), "switches": text["switches"] | switches}, image)


def internvl_tower(f: Fields, merged: int) -> Model:
    heads, image, patch = f.count("num_attention_heads"), side(f, "image_size"), side(f, "patch_size")
    grid = image // patch
    if not grid:
        raise Impossible(f"{f.file}: {f.said('patch_size')} is larger than {f.said('image_size')}")
    if f.fraction("projection_dropout"):
        raise Impossible(f"{f.file}: {f.said('projection_dropout')}: peakmem knows 0")
    norm = f.value("norm_type")
    if norm not in ("layer_norm", "rms_norm"):
        raise f.wrong("norm_type", "give layer_norm or rms_norm")
    facts = {"attention_bias": f.flag("attention_bias"), "qk_norm": f.flag("use_qk_norm"),
             "rms_norms": norm == "rms_norm", "mask_token": f.flag("use_mask_token"),
             "position_table": f.flag("use_absolute_position_embeddings"),
             "last_norm": not f.flag("use_mean_pooling")}
    f.used |= {"layer_scale_init_value"}
    return Model(
        name="image", architecture="internvl", layers=layers(f), hidden=f.count("hidden_size"), heads=heads,
        kv_heads=heads, head_size=head_size(f, own=False), feed_forward=f.count("intermediate_size"),
        activation=f.activation("hidden_act"), attention_dropout=f.fraction("attention_dropout"),
        hidden_dropout=f.fraction("hidden_dropout_prob"), image=image, patch=patch, channels=f.count("num_channels"),
        switches=frozenset(name for name, on in facts.items() if on),
        sizes={"qt": grid // merged, "qm": merged, "si": grid**2 + 1})


def idefics3(f: Fields) -> Sizes:
    """Idefics3: SigLIP's tower, whose squares of patches are merged."""
    text = text_of(f, "llama")
    image = clip_vision(part(f, "vision_config", IDEFICS3_VISION))
    grid, merged = image.image // image.patch, f.count("scale_factor", most=1000)
    sizes = {"gi": grid, "qt": grid // merged, "qm": merged, "qb": ceil((1 - 1 / grid) / (1 / grid))}
    switches = text["switches"] | seeing(f, grid, merged)
    tied = f.flag("tie_word_embeddings")
    return together(f, text | {"tied": tied, "switches": switches}, image.changed(sizes=sizes))


def seeing(f: Fields, grid: int, merged: int) -> set[str]:
    """What says that tiles are looked at: their patches are whole squares."""
    if grid % merged:
        f.notes.append(f"no picture can be looked at: {grid} × {grid} patches of a tile are no whole squares of "
                       f"{merged} × {merged}")
        return set()
    return {"sees", "tiles"}


def smolvlm(f: Fields) -> Sizes:
    """SmolVLM: Idefics3 that looks at one tile where there is none."""
    sizes = idefics3(f)
    return sizes | {"switches": sizes["switches"] | {"keeps_one", "counts_tokens"}}
