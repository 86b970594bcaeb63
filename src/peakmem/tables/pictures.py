"""Pictures in the text of a sequence: how many, how large, and how many of its tokens they take."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, floor, isqrt, sqrt

from peakmem.errors import Impossible
from peakmem.model import Model
from peakmem.setup import Setup

LIMITS: Mapping[str, tuple[int, int]] = {
    "qwen2_vl": (3136, 12845056), "qwen2_5_vl": (3136, 12845056),
    "qwen3_vl": (65536, 16777216), "qwen3_vl_moe": (65536, 16777216), "qwen3_5": (65536, 16777216),
}
"""Pixels between which a processor keeps a picture: preprocessor_config.json of Qwen/Qwen2-VL-7B-Instruct,
Qwen2.5-VL-7B-Instruct, Qwen3-VL-8B-Instruct and Qwen3.5-2B-Base (min_pixels and max_pixels; size). All of them name
transformers' Qwen2VLImageProcessor (5.24, models/qwen2_vl/image_processing_qwen2_vl.py, models/auto/
image_processing_auto.py), which such a file overrides: its own are 3,136 and 1,003,520."""


def images_of(model: Model, setup: Setup) -> int:
    """Pictures in each sequence; none in a model of text alone. Errors: Impossible where they take more tokens than
    there are, or peakmem does not know how the model looks at them."""
    if "sees" not in model.switches:
        if setup.images > 0 and model.towers and model.vocabulary:
            raise Impossible(f"--images {setup.images}: {model.architecture} is counted without pictures between its "
                             "tokens; leave it out")
        return 0
    count = (1 if setup.run == "training" else 0) if setup.images < 0 else setup.images
    if count > 1 and not {"any_size", "tiles"} & model.switches:
        raise Impossible(f"--images {count}: of {model.architecture} peakmem knows one picture in each sequence; give "
                         "1 or 0")
    for name, usual in (("beams", 1), ("prefill_chunk", 0)):
        if count and getattr(setup, name) != usual:
            raise Impossible(f"--images {count} with --{name.replace('_', '-')}: peakmem knows a prompt with pictures "
                             "whole, without beams; leave one of them out")
    tokens = count * tokens_of_image(model, setup) if count else 0
    if tokens > setup.sequence:
        takes = "a picture takes" if count == 1 else f"{count} pictures take"
        raise Impossible(f"--sequence {setup.sequence:,}: {takes} {tokens:,} tokens of it; give {tokens:,} or more, or "
                         "--images 0")
    return count


def tokens_of_image(model: Model, setup: Setup) -> int:
    """A token for each patch, and one for the class token where it is kept; or one for each square that is merged, and
    Mistral 3's break at the end of each row.

    Source: transformers 5.24 models/llava/modeling_llava.py, get_image_features; models/qwen2_vl/.
    """
    if "any_size" in model.switches:
        rows, columns = grid_of(model, setup)
        breaks = rows // int(model.towers[0].sizes["ms"]) if model.architecture == "mistral3" else 0
        return rows * columns // int(model.towers[0].sizes["pm"]) + breaks
    for merged in ("gt", "qt"):
        if merged in model.towers[0].sizes:
            return int(model.towers[0].sizes[merged]) ** 2
    return int((model.image // model.patch) ** 2 + ("class_token" in model.switches))


def grid_of(model: Model, setup: Setup) -> tuple[int, int]:
    """Rows and columns of patches of one picture, after the processor has rounded it to whole squares of them.

    Errors: Impossible. Source: transformers 5.24 models/qwen2_vl/image_processing_qwen2_vl.py, smart_resize.
    """
    height, width, merge = setup.image_height, setup.image_width, isqrt(model.towers[0].sizes["pm"])
    side = model.patch * merge
    if model.architecture == "mistral3":
        rows, columns = whole_squares(height, width, model.image, side)
        return merge * rows, merge * columns
    if max(height, width) > 200 * min(height, width):
        raise Impossible(f"--image-height {height:,}, --image-width {width:,}: the processor takes no picture with one "
                         "side more than 200 times the other")
    least, most = LIMITS[model.architecture]
    rows, columns = round(height / side), round(width / side)
    if rows * columns * side**2 > most:
        shrunk = sqrt(height * width / most)
        rows, columns = (max(1, floor(x / shrunk / side)) for x in (height, width))
    elif rows * columns * side**2 < least:
        grown = sqrt(least / (height * width))
        rows, columns = (ceil(x * grown / side) for x in (height, width))
    return rows * merge, columns * merge


def whole_squares(height: int, width: int, longest: int, side: int) -> tuple[int, int]:
    """Rows and columns of squares of Pixtral's processor: the picture no longer than that, then rounded up to squares.

    Source: transformers 5.24 models/pixtral/image_processing_pixtral.py, get_resize_output_image_size.
    """
    ratio = max(height / longest, width / longest)
    if ratio > 1:
        height, width = floor(height / ratio), floor(width / ratio)
    return (height - 1) // side + 1, (width - 1) // side + 1


def grids_of(model: Model, setup: Setup) -> tuple[int, ...] | None:
    """How many pictures each sequence has, and their rows and columns of patches, where they may be of any size; how
    many tiles, where it may have several."""
    count = images_of(model, setup)
    if count and "tiles" in model.switches:
        return (count,)
    return (count, *grid_of(model, setup)) if count and "any_size" in model.switches else None
