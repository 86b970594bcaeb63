"""Diffusion models: a config.json of diffusers (`_class_name`) -> keyword arguments of `Model`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peakmem.errors import Impossible, UnknownName, printable
from peakmem.readers.fields import Fields
from peakmem.readers.shared import Sizes, side

CLASSES: Mapping[str, str] = {"UNet2DConditionModel": "unet_2d_condition", "DiTTransformer2DModel": "dit"}
"""diffusers' class -> the architecture."""
TEXT = 77
"""Tokens of CLIP's text encoder, whose hidden states a UNet reads; no file says it."""
FIXED = (
    "center_input_sample", "mid_block_type", "only_cross_attention", "dropout", "act_fn", "encoder_hid_dim_type",
    "reverse_transformer_layers_per_block", "num_attention_heads", "dual_cross_attention", "class_embed_type",
    "num_class_embeds", "upcast_attention", "resnet_time_scale_shift", "resnet_skip_time_act", "time_embedding_type",
    "time_embedding_act_fn", "timestep_post_act", "time_cond_proj_dim", "conv_in_kernel", "conv_out_kernel",
    "attention_type", "class_embeddings_concat", "cross_attention_norm", "flip_sin_to_cos", "downsample_padding",
)
"""What makes another network of a UNet: known as diffusers has it by default."""
NUMBERS = ("norm_eps", "freq_shift", "mid_block_scale_factor", "resnet_out_scale_factor", "encoder_hid_dim",
           "mid_block_only_cross_attention", "addition_embed_type_num_heads")
"""Fields that change no size."""


def of_diffusers(config: Mapping[str, Any], file: str) -> Mapping[str, Any]:
    """The same file under the name of an architecture, where it is one of diffusers. Errors: UnknownName."""
    named = config.get("_class_name")
    if "model_type" in config or not isinstance(named, str):
        return config
    if named not in CLASSES:
        raise UnknownName(f"_class_name in {file}:", named, CLASSES)
    return {"model_type": CLASSES[named], **{k: v for k, v in config.items() if not k.startswith("_")}}


def unet_2d(f: Fields) -> Sizes:
    """UNet2DConditionModel: levels of residual blocks, most of them with transformers that read a text."""
    for name in FIXED:
        value, usual = f.value(name), f.defaults[name]
        if value != usual and not (value in (None, False) and usual in (None, False)):
            raise Impossible(f"{f.file}: {name} is {printable(value, 40)}; peakmem knows "
                             f"{printable(usual, 40)}")
    f.used |= set(NUMBERS)
    down, up = f.value("down_block_types"), f.value("up_block_types")
    channels = listed(f, "block_out_channels")
    levels = len(channels)
    crossing = [crosses(f, name, types, levels) for name, types in (("down_block_types", down),
                                                                    ("up_block_types", up))]
    if crossing[0] != crossing[1][::-1]:
        raise Impossible(f"{f.file}: down_block_types and up_block_types differ in where they read the text; peakmem "
                         "knows UNets whose ways down and up are alike")
    counts = listed(f, "layers_per_block", levels)
    depths = listed(f, "transformer_layers_per_block", levels)
    heads = listed(f, "attention_head_dim", levels)  # which diffusers takes for their number
    sizes = head_sizes(f, channels, heads)
    resnets = {f"n_resnets{i}": count for i, count in enumerate(counts, 1)} | {"n_levels": levels}
    kinds = [*(f"down {i}.{j};" for i in range(levels) if crossing[0][i] for j in range(counts[i])
               for _ in range(depths[i])), *("mid 0.0;",) * depths[-1]]
    for number, i in enumerate(reversed(range(levels))):
        kinds += [f"up {number}.{j};" for j in range(counts[i] + 1) if crossing[0][i] for _ in range(depths[i])]
    switches = {"latents", *(("linear_projection",) if f.flag("use_linear_projection") else ())}
    added = added_sizes(f)
    switches |= {"text_time"} if added else set()
    groups = f.count("norm_num_groups")
    if any(width % groups for width in channels):
        raise Impossible(f"{f.file}: {f.said('norm_num_groups')} must divide block_out_channels")
    image = side(f, "sample_size") if f.value("sample_size") is not None else 64
    f.notes += [f"a text of {TEXT} tokens unless --sequence says otherwise; latents of {image} × {image} unless "
                "--image does (pictures have 8 times the side)",
                "loss: the mean squared error of the predicted noise; text encoder and VAE are not counted",
                "convolution workspaces are not counted: the library chooses them"]
    return {
        "layers": len(kinds), "layer_kinds": tuple(kinds), "hidden": channels[-1], "heads": heads[-1],
        "kv_heads": heads[-1], "head_size": max(sizes), "feed_forward": 4 * channels[-1], "activation": "gelu",
        "image": image, "patch": 1, "channels": f.count("in_channels"),
        "switches": frozenset(switches | shortcuts(channels, counts)),
        "sizes": {"te": 4 * channels[0], "cr": f.count("cross_attention_dim"), "co": f.count("out_channels"),
                  "Gn": groups, "words": TEXT, **resnets, **added,
                  **{f"ch{i}": n for i, n in enumerate(channels, 1)}, **{f"a{i}": n for i, n in enumerate(heads, 1)},
                  **{f"d{i}": n for i, n in enumerate(sizes, 1)}},
    }


def dit(f: Fields) -> Sizes:
    """DiTTransformer2DModel: layers all alike, told of timestep and class."""
    for name in ("norm_type", "activation_fn", "dropout", "upcast_attention", "norm_elementwise_affine"):
        if f.value(name) != f.defaults[name]:
            raise Impossible(f"{f.file}: {name} is {printable(f.value(name), 40)}; peakmem knows "
                             f"{printable(f.defaults[name], 40)}")
    f.used |= {"norm_eps", "norm_num_groups"}
    heads, size = f.count("num_attention_heads"), f.count("attention_head_dim")
    image, patch, channels = side(f, "sample_size"), f.count("patch_size"), f.count("in_channels")
    if size % 8 or size > 256:
        raise Impossible(f"{f.file}: {f.said('attention_head_dim')}; peakmem knows heads of 8, 16, … 256 channels")
    if image % patch:
        raise Impossible(f"{f.file}: {f.said('patch_size')} must divide {f.said('sample_size')}")
    f.notes += [f"latents of {image} × {image}; pictures have 8 times the side",
                "loss: the mean squared error of the predicted noise; the VAE is not counted"]
    return {
        "layers": f.count("num_layers"), "hidden": heads * size, "heads": heads, "kv_heads": heads, "head_size": size,
        "feed_forward": 4 * heads * size, "activation": "gelu_pytorch_tanh", "image": image, "patch": patch,
        "channels": channels, "classes": f.count("num_embeds_ada_norm"),
        "switches": frozenset({"latents", *(("attention_bias",) if f.flag("attention_bias") else ())}),
        "sizes": {"co": f.count("out_channels", null=channels)},
    }


def listed(f: Fields, name: str, levels: int = 0) -> list[int]:
    """One number for each level, or one for all. Errors: Unreadable."""
    value = f.value(name)
    if levels and isinstance(value, int) and not isinstance(value, bool):
        return [f.count(name, most=10**6)] * levels
    if not isinstance(value, (list, tuple)) or not 0 < len(value) < 10 or levels and len(value) != levels:
        raise f.wrong(name, f"give a number, or a list of {levels}" if levels else "give a list of at most 9 numbers")
    return [Fields(f.file, {name: each}, {}).count(name, most=10**6) for each in value]


def crosses(f: Fields, name: str, types: Any, levels: int) -> list[bool]:
    """Which blocks read the text. Errors: Unreadable."""
    way = "Down" if name.startswith("down") else "Up"
    known = {f"{way}Block2D": False, f"CrossAttn{way}Block2D": True}
    if not isinstance(types, (list, tuple)) or len(types) != levels or any(not isinstance(t, str) or t not in known
                                                                           for t in types):
        raise f.wrong(name, f"give {levels} of {', '.join(known)}")
    return [known[t] for t in types]


def head_sizes(f: Fields, channels: list[int], heads: list[int]) -> list[int]:
    """Channels of each head. Errors: Impossible."""
    for width, count in zip(channels, heads, strict=True):
        if width % count or width // count % 8 or width // count > 256:
            raise Impossible(f"{f.file}: {width} channels in attention_head_dim {count} heads; peakmem knows heads of "
                             "8, 16, … 256 channels")
    return [width // count for width, count in zip(channels, heads, strict=True)]


def added_sizes(f: Fields) -> dict[str, int]:
    """SDXL's: the pooled text and six numbers, embedded and added to the timestep. Errors: Impossible."""
    kind = f.value("addition_embed_type")
    f.used |= {"projection_class_embeddings_input_dim", "addition_time_embed_dim"}
    if kind is None:
        return {}
    if kind != "text_time":
        raise Impossible(f"{f.file}: addition_embed_type is {printable(kind, 40)}; peakmem knows text_time, or none")
    width, each = f.count("projection_class_embeddings_input_dim"), f.count("addition_time_embed_dim")
    if width <= 6 * each:
        raise Impossible(f"{f.file}: {f.said('projection_class_embeddings_input_dim')} must be more than 6 × "
                         f"{f.said('addition_time_embed_dim')}")
    return {"ad": width, "at": each}


def shortcuts(channels: list[int], counts: list[int]) -> set[str]:
    """Residual blocks whose input has another number of channels than their output."""
    found, levels = set(), len(channels)
    for i, (width, count) in enumerate(zip(channels, counts, strict=True)):
        if channels[max(i - 1, 0)] != width:
            found.add(f"shortcut down {i}.0")
        number = levels - 1 - i
        for j in range(count + 1):
            before = channels[min(i + 1, levels - 1)] if not j else width
            kept = width if j < count else channels[max(i - 1, 0)]
            if before + kept != width:
                found.add(f"shortcut up {number}.{j}")
    return found
