"""Tiny diffusion models of diffusers, and the estimate in the terms of their recorded steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peakmem.estimate.settings import structure_of
from peakmem.readers.hf_config import from_config
from peakmem.setup import Setup
from tests.reference_steps import changes, grouped

__all__ = ["CONFIGS", "compared", "grouped", "setup_of"]

Record = Mapping[str, Any]
UNET: dict[str, Any] = {
    "_class_name": "UNet2DConditionModel", "sample_size": 16, "in_channels": 3, "out_channels": 3,
    "block_out_channels": [16, 32, 48], "layers_per_block": 2, "cross_attention_dim": 20, "attention_head_dim": 2,
    "down_block_types": ["CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"],
    "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"], "norm_num_groups": 4,
}
SDXL: dict[str, Any] = {
    "_class_name": "UNet2DConditionModel", "sample_size": 16, "in_channels": 4, "out_channels": 4,
    "block_out_channels": [16, 32], "layers_per_block": 2, "cross_attention_dim": 20, "attention_head_dim": [2, 4],
    "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D"], "transformer_layers_per_block": [1, 3],
    "up_block_types": ["CrossAttnUpBlock2D", "UpBlock2D"], "norm_num_groups": 4, "use_linear_projection": True,
    "addition_embed_type": "text_time", "addition_time_embed_dim": 6, "projection_class_embeddings_input_dim": 46,
}
DIT: dict[str, Any] = {
    "_class_name": "DiTTransformer2DModel", "sample_size": 12, "in_channels": 3, "out_channels": 6, "patch_size": 2,
    "num_attention_heads": 4, "attention_head_dim": 16, "num_layers": 3, "num_embeds_ada_norm": 10,
}
CONFIGS = {"unet": UNET, "sdxl": SDXL, "dit": DIT}


def setup_of(record: Record) -> Setup:
    run = record["run"]
    return Setup.of(run="inference" if run == "inference" else "training", precision=record["precision"],
                    checkpoint="full" if run == "checkpointing" else "none", batch=record["batch"],
                    sequence=record["sequence"], optimizer_implementation="foreach")


def compared(record: Record, config: Mapping[str, Any] | None = None) -> dict[str, tuple[list[int], list[int]]]:
    """Estimate and record, phase by phase: allocations one by one, the frees between two of them as one sum."""
    model = from_config(dict(config or CONFIGS[record["config"]]))
    structure, numbers = structure_of(model, setup_of(record), unfold=True)
    ours = changes(structure, numbers)
    return {name: (grouped(ours.get(name, [])), events) for name, events in record["events"].items()}
