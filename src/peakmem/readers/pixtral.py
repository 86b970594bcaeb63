"""Decoders behind Pixtral's tower: config.json fields -> keyword arguments of `Model`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peakmem.errors import Impossible
from peakmem.model import Model
from peakmem.readers import llama_kin
from peakmem.readers.fields import Fields
from peakmem.readers.shared import Sizes
from peakmem.readers.tiled import text_of, tower_kind
from peakmem.readers.towers import clip_vision, part
from peakmem.readers.vision_language import together

PIXTRAL: Mapping[str, Any] = {
    "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
    "num_channels": 3, "image_size": 1024, "patch_size": 16, "hidden_act": "gelu", "attention_dropout": 0.0}
OF_MISTRAL3: Mapping[str, Any] = {**PIXTRAL, "image_size": 1540, "patch_size": 14}
MISTRAL3_TEXT: Mapping[str, Any] = {
    "hidden_size": 5120, "intermediate_size": 32768, "num_hidden_layers": 40, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 131072, "sliding_window": None, "hidden_act": "silu",
    "attention_dropout": 0.0}


def mistral3(f: Fields) -> Sizes:
    """Mistral 3: Mistral's decoder or Ministral 3's, squares of patches merged before the projector."""
    text = text_of(f, "mistral", {} if f.value("text_config") else MISTRAL3_TEXT, {"ministral3": ministral3})
    pictures = part(f, "vision_config", PIXTRAL if f.value("vision_config") else OF_MISTRAL3)
    tower_kind(f, pictures, "pixtral")
    if f.value("vision_feature_layer") != -1:
        raise Impossible(f"{f.file}: {f.said('vision_feature_layer')}: peakmem knows -1, the last layer")
    merged = f.count("spatial_merge_size", most=100)
    image = pixtral(pictures, merged)
    switches = text["switches"] | {"sees", "any_size", f"projector {f.activation('projector_hidden_act')}"}
    switches |= {"projector_bias"} if f.flag("multimodal_projector_bias") else set()
    return together(f, text | {"tied": f.flag("tie_word_embeddings"), "switches": switches}, image)


def ministral3(f: Fields) -> Sizes:
    sizes = llama_kin.ministral3(f)
    return sizes | {"switches": sizes["switches"] | {"scaled_queries"}}


def pixtral(f: Fields, merged: int) -> Model:
    """The tower, in whose one sequence a mask keeps pictures apart."""
    image = clip_vision(f)
    if image.head_size % 4:
        raise Impossible(f"{f.file}: heads of {image.head_size}: angles of rows and columns need a multiple of 4")
    return image.changed(architecture="pixtral", switches=frozenset({"masked"}), sizes={"ms": merged, "pm": merged**2})
