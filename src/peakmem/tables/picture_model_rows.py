"""DeiT, DINOv2 and ConvNeXt: the rows of `models.presets`, continued."""

from __future__ import annotations

from typing import Any

from peakmem.tables.models import HUB, Preset, encoder

Config = dict[str, Any]


def dinov2(layers: int, hidden: int, heads: int, registers: bool = False, gated: bool = False) -> Config:
    """At the 518 pixels of a side of which its positions are, with ImageNet's classes."""
    config: Config = {"num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads,
                      "image_size": 518, "patch_size": 14, "use_swiglu_ffn": gated, "num_labels": 1000}
    return {"model_type": "dinov2_with_registers" if registers else "dinov2", **config}


def convnext(depths: list[int], width: int, version: str = "") -> Config:
    return {"model_type": f"convnext{version}", "depths": depths, "hidden_sizes": [width << i for i in range(4)],
            "num_labels": 1000}


SMALL, BASE = [3, 3, 9, 3], [3, 3, 27, 3]

ROWS: tuple[Preset, ...] = (
    Preset("deit-tiny", encoder("deit", 12, 192, 3, num_labels=1000), 5717800,
           f"{HUB}facebook/deit-tiny-distilled-patch16-224", ("deit-tiny-distilled-patch16-224",)),
    Preset("deit-small", encoder("deit", 12, 384, 6, num_labels=1000), 22051432,
           f"{HUB}facebook/deit-small-distilled-patch16-224", ("deit-small-distilled-patch16-224",)),
    Preset("deit-base", encoder("deit", 12, 768, 12, num_labels=1000), 86569192,
           f"{HUB}facebook/deit-base-distilled-patch16-224", ("deit-base-distilled-patch16-224", "deit")),
    Preset("dinov2-small", dinov2(12, 384, 6), 22825576, f"{HUB}facebook/dinov2-small"),
    Preset("dinov2-base", dinov2(12, 768, 12), 88117480, f"{HUB}facebook/dinov2-base", ("dinov2",)),
    Preset("dinov2-large", dinov2(24, 1024, 16), 306417640, f"{HUB}facebook/dinov2-large"),
    Preset("dinov2-giant", dinov2(40, 1536, 24, gated=True), 1139553768, f"{HUB}facebook/dinov2-giant"),
    Preset("dinov2-with-registers-small", dinov2(12, 384, 6, True), 22827112,
           f"{HUB}facebook/dinov2-with-registers-small"),
    Preset("dinov2-with-registers-base", dinov2(12, 768, 12, True), 88120552,
           f"{HUB}facebook/dinov2-with-registers-base", ("dinov2-with-registers",)),
    Preset("dinov2-with-registers-large", dinov2(24, 1024, 16, True), 306421736,
           f"{HUB}facebook/dinov2-with-registers-large"),
    Preset("dinov2-with-registers-giant", dinov2(40, 1536, 24, True, True), 1139559912,
           f"{HUB}facebook/dinov2-with-registers-giant"),
    Preset("convnext-tiny", convnext(SMALL, 96), 28589128, f"{HUB}facebook/convnext-tiny-224",
           ("convnext-tiny-224",)),
    Preset("convnext-small", convnext(BASE, 96), 50223688, f"{HUB}facebook/convnext-small-224",
           ("convnext-small-224",)),
    Preset("convnext-base", convnext(BASE, 128), 88591464, f"{HUB}facebook/convnext-base-224", ("convnext-base-224",)),
    Preset("convnext-large", convnext(BASE, 192), 197767336, f"{HUB}facebook/convnext-large-224",
           ("convnext-large-224",)),
    Preset("convnext-xlarge", convnext(BASE, 256), 350196968, f"{HUB}facebook/convnext-xlarge-224-22k-1k"),
    Preset("convnextv2-tiny", convnext(SMALL, 96, "v2"), 28635496, f"{HUB}facebook/convnextv2-tiny-1k-224",
           ("convnextv2-tiny-1k-224",)),
    Preset("convnextv2-base", convnext(BASE, 128, "v2"), 88717800, f"{HUB}facebook/convnextv2-base-1k-224",
           ("convnextv2-base-1k-224",)),
    Preset("convnextv2-large", convnext(BASE, 192, "v2"), 197956840, f"{HUB}facebook/convnextv2-large-1k-224",
           ("convnextv2-large-1k-224",)),
    Preset("convnextv2-huge", convnext(BASE, 352, "v2"), 660289640, f"{HUB}facebook/convnextv2-huge-1k-224",
           ("convnextv2-huge-1k-224",)),
)
