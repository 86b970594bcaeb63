"""Models of several towers: config.json fields -> keyword arguments of `Model`, whose `towers` are models too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peakmem.errors import Impossible, Unreadable, printable
from peakmem.model import Model
from peakmem.readers.defaults_towers import CLIP_TEXT, CLIP_VISION
from peakmem.readers.fields import Fields
from peakmem.readers.shared import Sizes, head_size, layers, side


def part(f: Fields, name: str, defaults: Mapping[str, Any]) -> Fields:
    """A nested configuration, whose fields are reported with its own name. Errors: Unreadable."""
    value = f.value(name)
    if value is not None and not isinstance(value, dict):
        raise Unreadable(f"{f.file}: {name} is {printable(value, 40)}; give an object")
    inner = Fields(f"{f.file}, {name}", value or {}, defaults)
    inner.notes = f.notes
    return inner


def clip(f: Fields) -> Sizes:
    """CLIP: a tower for pictures, which runs first, and one for captions, projected to one width."""
    text, image = part(f, "text_config", CLIP_TEXT), clip_vision(part(f, "vision_config", CLIP_VISION))
    heads, count = text.count("num_attention_heads"), layers(text)
    old = text.value("eos_token_id") == 2
    return {
        "layers": image.layers + count, "layer_kinds": ("image",) * image.layers + ("text",) * count,
        "hidden": text.count("hidden_size"), "heads": heads, "kv_heads": heads, "head_size": head_size(text, own=False),
        "feed_forward": text.count("intermediate_size"), "vocabulary": text.count("vocab_size"),
        "positions": text.count("max_position_embeddings"), "longest": text.count("max_position_embeddings"),
        "activation": text.activation("hidden_act"), "attention_dropout": text.fraction("attention_dropout"),
        "image": image.image, "patch": image.patch, "channels": image.channels, "towers": (image,),
        "switches": frozenset({"old_end_token"} if old else ()), "sizes": {"D": f.count("projection_dim")},
    }


def clip_vision(f: Fields) -> Model:
    """CLIP's tower for pictures."""
    heads, image, patch = f.count("num_attention_heads"), side(f, "image_size"), side(f, "patch_size")
    if patch > image:
        raise Impossible(f"{f.file}: {f.said('patch_size')} is larger than {f.said('image_size')}")
    return Model(
        name="image", architecture="clip", layers=layers(f), hidden=f.count("hidden_size"), heads=heads, kv_heads=heads,
        head_size=head_size(f, own=False), feed_forward=f.count("intermediate_size"),
        activation=f.activation("hidden_act"), attention_dropout=f.fraction("attention_dropout"), image=image,
        patch=patch, channels=f.count("num_channels"), sizes={"si": (image // patch) ** 2 + 1},
    )
