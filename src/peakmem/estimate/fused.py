"""Kernels that do in one step what transformers writes as several: norms, rotary positions, gated activations."""

from __future__ import annotations

from peakmem.estimate.layout import dims, flat
from peakmem.estimate.node import Node
from peakmem.estimate.ops import autocast_fp32, cast, result_like
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import weight


def fused_rms(x: Tensor, name: str) -> Tensor:
    """nn.RMSNorm, aten::_fused_rms_norm on CUDA: keeps input, weight and one number per row; no fp32 copies."""
    with scope(name):
        x = autocast_fp32(x)
        w = weight("weight")
        n = Node("rms_norm", x, w)
        n.saves(x, f"gradients of {n.scope}")
        n.saves(w, f"gradients of {n.scope}")
        out = n.makes(x.dims, x.dtype)
        n.keeps(n.makes((*x.dims[:-1], ()), "fp32", None, "reciprocal root"), f"{n.scope} is normalised again")
        n.gradient(0)
        n.gradient(1)
        return n.output(out)


def rotate_complex(q: Tensor, k: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """torchtitan's ComplexRoPE.apply_rotary_emb: pairs of fp32 numbers as complex ones, times the table.

    A complex number is counted as its two fp32 numbers, so d/2 of them are d. Nothing is kept but the table; the
    backward multiplies with its conjugate, which is a copy (the Conjugate fallback, ConjugateFallback.cpp).
    """
    q32, k32 = cast(q, "fp32", "queries in fp32"), cast(k, "fp32", "keys in fp32")
    q_out, k_out = turned(q32, table, "queries, rotated"), turned(k32, table, "keys, rotated")
    return cast(q_out, q.dtype, "queries, rotated"), cast(k_out, k.dtype, "keys, rotated")


def turned(x: Tensor, table: Tensor, name: str) -> Tensor:
    """mul of complex tensors, the second without a gradient; seen as real, which wants a contiguous gradient."""
    n = Node("complex mul", x)
    n.saves(table, f"gradient of the other factor in {n.scope}")
    out = result_like(n, x, None, name)
    n.gradient(0, temporaries=((table.dims, "fp32"),))
    out = n.output(out)
    n = Node("view_as_real", out)
    n.gradient(0, "contiguous")
    return n.output(out.seen_as(out.dims))


def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate)·up as Liger's kernel (ops/swiglu.py, liger_kernel 0.8.5): keeps both and, in backward, writes
    their gradients over them."""
    n = Node("swiglu", gate, up)
    n.keeps(gate, "silu is computed again from it; its gradient takes its place")
    n.keeps(up, "gradient of the gate; its gradient takes its place")
    out = n.makes(gate.dims, gate.dtype, None, "silu(gate)·up")
    n.gradient(0, "saved")
    n.gradient(1, "saved")
    return n.output(out)


def rotary_prefix() -> Tensor:
    """The table's rows for this sequence, (1, s, 1, d): a view of a buffer, which is there all the time."""
    shape = dims("1 s 1 d")
    return Tensor(shape, "fp32", flat(shape), None)
