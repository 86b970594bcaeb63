"""What a model that reads pictures between its tokens is called with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from .pictures import all_real, grid_of, sides_of


def pictured(config: Any, tokens: dict[str, torch.Tensor], dtype: torch.dtype, device: str,
             grid: Sequence[int]) -> dict[str, torch.Tensor]:
    """Return tokens and labels with pictures for each sequence.

    `grid`: of a tower for pictures of any size, how many each sequence has, and their rows and columns of patches.
    Their pixels are fp32, as the processor returns them. Of a tower for tiles, how many each sequence has.
    """
    seen, size = config.vision_config, len(tokens["input_ids"])
    if config.model_type == "mistral3":
        made = sized(config, size, device, grid)
    elif len(grid) == 3:
        made = packed(seen, size, device, grid)
        made["mm_token_type_ids"] = torch.empty_like(tokens["input_ids"])
    else:
        made = tiles_of(config, size, grid[0] if grid else 1, dtype, device)
    if config.model_type in ("gemma3", "paligemma"):
        made["token_type_ids"] = torch.empty_like(tokens["input_ids"])
    return {"input_ids": tokens["input_ids"], **made, "labels": tokens["labels"]}


def packed(seen: Any, size: int, device: str, grid: Sequence[int]) -> dict[str, torch.Tensor]:
    """Patches of all pictures in one list, as the Qwen towers take them."""
    count, rows, columns = grid
    pictures = [[1, rows, columns]] * (size * count)
    width = seen.in_channels * seen.temporal_patch_size * seen.patch_size**2
    return {"pixel_values": torch.empty(size * count * rows * columns, width, device=device),
            "image_grid_thw": grid_of(pictures, seen.spatial_merge_size**2)}


def sized(config: Any, size: int, device: str, grid: Sequence[int]) -> dict[str, torch.Tensor]:
    """Pictures in fp32, and their sides."""
    seen, (count, rows, columns) = config.vision_config, grid
    sides = rows * seen.patch_size, columns * seen.patch_size
    return {"pixel_values": torch.empty(size * count, seen.num_channels, *sides, device=device),
            "image_sizes": sides_of(sides, size * count, rows * columns // config.spatial_merge_size**2)}


def tiles_of(config: Any, size: int, tiles: int, dtype: torch.dtype, device: str) -> dict[str, torch.Tensor]:
    """Squares in the parameters' dtype, one below the other; Idefics3 takes a list of them for each sequence."""
    seen = config.vision_config
    side = seen.image_size if isinstance(seen.image_size, int) else seen.image_size[0]
    if config.model_type not in ("idefics3", "smolvlm"):
        return {"pixel_values": torch.empty(size * tiles, seen.num_channels, side, side, dtype=dtype, device=device)}
    all_real(tiles, size)
    return {"pixel_values": torch.empty(size, tiles, seen.num_channels, side, side, dtype=dtype, device=device),
            "pixel_attention_mask": torch.empty(size, tiles, side, side, dtype=torch.int64, device=device)}
