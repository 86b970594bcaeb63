"""Diffusion models: the rows of `models.presets`, continued; parameters as diffusers 0.42 builds them."""

from __future__ import annotations

from typing import Any

from peakmem.tables.models import HUB, Preset

Config = dict[str, Any]
CROSSING, PLAIN = "CrossAttn", ""


def unet(channels: list[int], heads: int | list[int], width: int, side: int, crossing: list[bool],
         **more: Any) -> Config:
    """A UNet2DConditionModel whose levels read a text where `crossing` says so."""
    words = [CROSSING if reads else PLAIN for reads in crossing]
    return {"_class_name": "UNet2DConditionModel", "block_out_channels": channels, "attention_head_dim": heads,
            "cross_attention_dim": width, "sample_size": side, "layers_per_block": 2,
            "transformer_layers_per_block": 1, "in_channels": 4, "out_channels": 4, "norm_num_groups": 32,
            "down_block_types": [f"{word}DownBlock2D" for word in words],
            "up_block_types": [f"{word}UpBlock2D" for word in reversed(words)], **more}


def dit(side: int) -> Config:
    return {"_class_name": "DiTTransformer2DModel", "num_layers": 28, "num_attention_heads": 16,
            "attention_head_dim": 72, "in_channels": 4, "out_channels": 8, "patch_size": 2, "sample_size": side,
            "num_embeds_ada_norm": 1000}


FOUR, LAST = [320, 640, 1280, 1280], [True, True, True, False]
ROWS = (
    Preset("sd-1.5-unet", unet(FOUR, 8, 768, 64, LAST), 859520964,
           f"unet/{HUB}stable-diffusion-v1-5/stable-diffusion-v1-5", ("sd-1.5", "stable-diffusion-1.5", "sd-1.4-unet")),
    Preset("sd-2.1-unet", unet(FOUR, [5, 10, 20, 20], 1024, 96, LAST, use_linear_projection=True), 865910724,
           f"unet/{HUB}stabilityai/stable-diffusion-2-1", ("sd-2.1", "stable-diffusion-2.1")),
    Preset("sdxl-unet", unet([320, 640, 1280], [5, 10, 20], 2048, 128, [False, True, True],
                             transformer_layers_per_block=[1, 2, 10], use_linear_projection=True,
                             addition_embed_type="text_time", addition_time_embed_dim=256,
                             projection_class_embeddings_input_dim=2816), 2567463684,
           f"unet/{HUB}stabilityai/stable-diffusion-xl-base-1.0", ("sdxl", "stable-diffusion-xl")),
    Preset("dit-xl-2", dit(32), 749826464, f"transformer/{HUB}facebook/DiT-XL-2-256", ("dit", "dit-xl-2-256")),
    Preset("dit-xl-2-512", dit(64), 749826464, f"transformer/{HUB}facebook/DiT-XL-2-512"),
)
