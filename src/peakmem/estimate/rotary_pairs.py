"""Rotary positions on pairs of neighbours, as DeepSeek's weights have them, and on two halves without a copy."""

from __future__ import annotations

from peakmem.estimate.ops import add, mul, sub
from peakmem.estimate.shapes import cat, piece, split
from peakmem.estimate.slices import every_second
from peakmem.estimate.tape import Tensor


def rotate_pairs(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, size: str) -> tuple[Tensor, Tensor]:
    """apply_rotary_pos_emb_interleave of models/deepseek_v3/modeling_deepseek_v3.py."""
    half = f"{size}/2"
    cos, sin = piece(cos, len(cos.dims) - 1, half), piece(sin, len(sin.dims) - 1, half)
    q1, q2 = every_second(q, half), every_second(q, half)
    k1, k2 = every_second(k, half), every_second(k, half)
    q = turned(q1, q2, cos, sin, q)
    k = turned(k1, k2, cos, sin, k)
    return q, k


def rotate_halves(x: Tensor, cos: Tensor, sin: Tensor, size: str) -> Tensor:
    """_apply_rotary_emb of models/gpt_oss/modeling_gpt_oss.py: cos and sin have half a head's size."""
    first, second = split(x, len(x.dims) - 1, [f"{size}/2", f"{size}/2"])
    first_ = sub(mul(first, cos, "first·cos"), mul(second, sin, "second·sin"), "first half")
    second_ = add(mul(second, cos, "second·cos"), mul(first, sin, "first·sin"), "second half")
    return cat([first_, second_], x.dims, "rotated")


def turned(x1: Tensor, x2: Tensor, cos: Tensor, sin: Tensor, like: Tensor) -> Tensor:
    """cat of x1·cos - x2·sin and x2·cos + x1·sin."""
    return cat([sub(mul(x1, cos, "x1·cos"), mul(x2, sin, "x2·sin"), "first half"),
                add(mul(x2, cos, "x2·cos"), mul(x1, sin, "x1·sin"), "second half")], like.dims, "rotated")
