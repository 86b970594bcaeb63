"""Models that classify pictures, ViT's kin: config.json fields -> keyword arguments of `Model`."""

from __future__ import annotations

from peakmem.errors import Impossible
from peakmem.readers.classics import vit
from peakmem.readers.fields import Fields
from peakmem.readers.shared import Sizes, architecture, kinds_of_stages, labels, side, stages


def deit(f: Fields) -> Sizes:
    """DeiT: ViT with a second token in front."""
    sizes = vit(f)
    return {**sizes, "positions": sizes["positions"] + 1, "sizes": {"ct": 2}}


def dinov2(f: Fields) -> Sizes:
    """DINOv2: ViT with a feed-forward of mlp_ratio × hidden, or a gated one of two thirds of that."""
    gated, registers = f.flag("use_swiglu_ffn"), "num_register_tokens" in f.defaults
    wide = f.count("hidden_size") * f.count("mlp_ratio", most=1000)
    sizes = vit(f, (wide * 2 // 3 + 7) // 8 * 8 if gated else wide)
    if gated and "hidden_act" in f.given:
        f.notes.append("hidden_act is not used: the gated feed-forward has silu")
    if gated:
        sizes["activation"] = "silu"
    bare = architecture(f) in ("Dinov2Model", "Dinov2WithRegistersModel")
    if bare:
        f.notes.append(f"{architecture(f)} is trained as {architecture(f).removesuffix('Model')}ForImageClassification,"
                       " with a classifier; --run inference is the class itself")
    facts = {"gated": gated, "registers": registers, "bare": bare, "drop_path": f.fraction("drop_path_rate") > 0,
             "mask_token": registers or f.flag("use_mask_token")}
    return {**sizes, "switches": sizes["switches"] | {name for name, on in facts.items() if on},
            "sizes": {"ct": 1 + (f.count("num_register_tokens") if registers else 0)}}


def convnext(f: Fields) -> Sizes:
    """ConvNeXt, and V2: stages of layers, each on half the rows and columns of the one before."""
    widths, depths = stages(f)
    if f.count("num_stages") != len(widths):
        raise Impossible(f"{f.file}: hidden_sizes has {len(widths)} entries, {f.said('num_stages')}; give as many")
    image, patch = side(f, "image_size"), side(f, "patch_size")
    coarsest = patch << len(widths) - 1
    if image % coarsest:
        raise Impossible(f"{f.file}: {f.said('image_size')} is no multiple of {coarsest}, the patch of the last stage")
    second = "layer_scale_init_value" not in f.defaults
    facts = {"drop_path": f.fraction("drop_path_rate") > 0, "response_norm": second,
             "layer_scale": not second and f.fraction("layer_scale_init_value") > 0}
    return {
        "layers": sum(depths), "layer_kinds": kinds_of_stages(depths), "hidden": widths[-1], "heads": 1, "kv_heads": 1,
        "head_size": 1, "feed_forward": 0, "activation": f.activation("hidden_act"), "image": image, "patch": patch,
        "channels": f.count("num_channels"), "classes": labels(f),
        "sizes": {**{f"ch{i}": width for i, width in enumerate(widths, 1)},
                  **{f"p{i + 1}": patch << i for i in range(len(widths))}},
        "switches": frozenset(name for name, on in facts.items() if on),
    }
