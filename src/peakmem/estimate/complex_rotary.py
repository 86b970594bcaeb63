"""Rotary positions as complex numbers: torch.polar, view_as_complex and back.

A complex number is two fp32 numbers, so queries and keys of `d/2` complex numbers are written as `d` fp32 numbers. The
table is complex: what casts floating tensors, as FSDP2 does with a layer's inputs, leaves it alone.
"""

from __future__ import annotations

from peakmem.estimate.node import Node
from peakmem.estimate.ops import cast, result_like
from peakmem.estimate.positions import made
from peakmem.estimate.shapes import alias, view
from peakmem.estimate.tape import Tensor


def complex_table(half: str) -> Tensor:
    """XxxRotaryEmbedding.forward of models/deepseek_v2 and models/llama4: (1, s, half) complex numbers."""
    numbers = made("1 s 1", "fp32", "positions in fp32")
    angles = made(f"1 s {half}", "fp32", "angles")
    del numbers
    ones = made(f"1 s {half}", "fp32", "ones")
    frequencies = made(f"1 s {half}", "complex64", "complex table")
    del ones
    frequencies = made(f"1 s {half}", "complex64", "complex table")
    del angles
    return frequencies


def rotate_complex(q: Tensor, k: Tensor, frequencies: Tensor, cast_last: bool = False) -> tuple[Tensor, Tensor]:
    """apply_rotary_emb: queries and keys in fp32, times the table, then cast back; cast_last: both at the end."""
    q_, k_ = pairs(q), pairs(k)
    if cast_last:
        q_out, k_out = turned(q_, frequencies), turned(k_, frequencies)
        return cast(q_out, q.dtype, "rotated"), cast(k_out, k.dtype, "rotated")
    q_out = cast(turned(q_, frequencies), q.dtype, "rotated")
    k_out = cast(turned(k_, frequencies), k.dtype, "rotated")
    return q_out, k_out


def pairs(x: Tensor) -> Tensor:
    """view_as_complex(x.float().reshape(…, -1, 2))."""
    return alias(view(cast(x, "fp32", "pairs in fp32"), x.dims))


def turned(x: Tensor, frequencies: Tensor) -> Tensor:
    """view_as_real(x * frequencies).flatten(3). Backward multiplies with a conjugated copy of the table.

    The gradient must be contiguous before it can be seen as complex (derivatives.yaml, view_as_real).
    """
    n = Node("mul", x)
    n.saves(frequencies, f"gradient of what {n.scope} turns")
    out = result_like(n, x, None, "turned")
    n.gradient(0, memory="grad", temporaries=((frequencies.dims, frequencies.dtype),))
    out = n.output(out)
    n = Node("view_as_real", out)
    n.gradient(0, "contiguous")
    return view(n.output(out.seen_as(out.dims)), x.dims)
