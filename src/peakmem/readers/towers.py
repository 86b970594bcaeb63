"""Models of several towers: config.json fields -> keyword arguments of `Model`, whose `towers` are models too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peakmem.errors import Impossible, Unreadable, printable
from peakmem.model import Model
from peakmem.readers.defaults_towers import CLIP_TEXT, CLIP_VISION
from peakmem.readers.fields import Fields
from peakmem.readers.shared import Sizes, head_size, kinds_of_stages, labels, layers, side, stages


def part(f: Fields, name: str, defaults: Mapping[str, Any]) -> Fields:
    """A nested configuration, whose fields are reported with its own name. Errors: Unreadable."""
    value = f.value(name)
    if value is not None and not isinstance(value, dict):
        raise Unreadable(f"{f.file}: {name} is {printable(value, 40)}; give an object")
    inner = Fields(f"{f.file}, {name}", value or {}, defaults)
    inner.notes, inner.assumed, inner.place = f.notes, f.assumed, name
    return inner


def clip(f: Fields) -> Sizes:
    """CLIP: a tower for pictures, which runs first, and one for captions, projected to one width."""
    # CLIPConfig.__post_init__: an older name of each part, whole with its defaults, wins where the file has both
    inside = {name: f"{name}_dict" if f.given.get(f"{name}_dict") is not None else name
              for name in ("text_config", "vision_config")}
    f.used |= set(inside)
    text = part(f, inside["text_config"], CLIP_TEXT)
    image = clip_vision(part(f, inside["vision_config"], CLIP_VISION))
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


def resnet(f: Fields) -> Sizes:
    """ResNet: stages of layers; the file says nothing of the size of pictures."""
    stem = f.count("embedding_size")
    widths, counts = stages(f)
    sizes = {"ch0": stem} | {f"ch{i}": width for i, width in enumerate(widths, 1)}
    layer = f.value("layer_type")
    if layer not in ("bottleneck", "basic"):
        raise f.wrong("layer_type", "give bottleneck or basic")
    if layer == "bottleneck" and any(width % 4 for width in widths):
        raise Impossible(f"{f.file}: bottleneck layers need hidden_sizes that 4 divides")
    strided = f.flag("downsample_in_first_stage")
    facts = {"basic_layers": layer == "basic", "first_stride": strided, "first_shortcut": strided or widths[0] != stem,
             "early_stride": f.flag("downsample_in_bottleneck")}
    kinds = kinds_of_stages(counts)
    f.notes += ["pictures of 224 × 224 unless --image says otherwise",
                "cuDNN's workspaces and the reserve of its batch norm are not counted: the library chooses them"]
    return {
        "layers": len(kinds), "layer_kinds": kinds, "hidden": sizes[f"ch{len(widths)}"], "heads": 1,
        "kv_heads": 1, "head_size": 1, "feed_forward": 0, "activation": f.activation("hidden_act"),
        "image": side(f, "image_size") if "image_size" in f.given else 224,
        "patch": 1, "channels": f.count("num_channels"), "classes": labels(f), "sizes": sizes,
        "switches": frozenset(name for name, on in facts.items() if on),
    }
