"""Mamba's selective scan token by token, as transformers runs it without the mamba-ssm package.

Source: mamba_selective_scan and mamba_selective_state_update of models/mamba/modeling_mamba.py in transformers 5.24,
line for line; Jamba and FalconMamba have the same. l: channels, o: numbers of a channel's state.
"""

from __future__ import annotations

from peakmem.estimate.attention import bmm
from peakmem.estimate.delta_ops import exp, softplus
from peakmem.estimate.layout import dims
from peakmem.estimate.loops import Gathered, stacked, steps
from peakmem.estimate.node import Node
from peakmem.estimate.ops import activation, add, autocast, cast, mul, promote
from peakmem.estimate.positions import made
from peakmem.estimate.shapes import contiguous, expand, select, swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor
from peakmem.estimate.weights import product


def time_steps(m: Structure, w: Tensor, x: Tensor) -> Tensor:
    """`weight @ x.transpose(1, 2)` on x of (b, s, R): (b, l, s).

    A matrix that wants a gradient is multiplied with all tokens at once, turned and copied; another one is one of a
    batch of products (aten/src/ATen/native/LinearAlgebra.cpp, should_fold).
    """
    if m.run == "training" and not w.needs_grad:
        other = autocast(x)
        given = autocast(w)
        return bmm(expand(view(given, "1 l R"), "b l R"), swap(other, "b R s"))
    given = autocast(x)
    out = contiguous(swap(product(given, w, None), "b l s"), "time steps")
    del given
    return out


def selective_scan(m: Structure, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor, z: Tensor,
                   delta_bias: Tensor) -> tuple[Tensor, Tensor | None]:
    """x, dt, z: (b, l, s), b and c: (b, s, o): the output, and the state after the last token for a cache."""
    dtype = x.dtype
    dt = add(dt, view(cast(delta_bias, dt.dtype), "l 1"), "time steps")
    dt = softplus(dt)
    discrete_a = exp(outer(view(a, "1 l 1 o"), view(dt, "b l s 1"), "b l s o", "time steps·A"), "decay")
    discrete_b = outer(view(dt, "b l s 1"), cast(view(b, "b 1 s o"), "fp32"), "b l s o", "time steps·B")
    update = mul(discrete_b, cast(view(x, "b l s 1"), "fp32"), "updates of the state")
    state = made("b l o", dtype, "state before the first token")
    outputs = Gathered()
    for _ in steps(m.pieces, "s"):
        state = add(mul(select(discrete_a, 2), state, "state, decayed"), select(update, 2), "state")
        low = cast(state, dtype)
        column = view(select(c, 1), "b o 1")
        out = bmm(view(low, "b l o"), view(column, "b o 1"))
        del low, column
        outputs.append(select(view(out, "b l 1"), 2))
    out = stacked(outputs, "b l s", "output of the scan")
    out = add(out, mul(x, view(d, "1 l 1"), "input·D"), "with input·D")
    out = mul(out, activation(z, "silu"), "gated")
    outputs.clear()
    del discrete_b
    return out, state if m.run == "inference" else None


def outer(x: Tensor, y: Tensor, target: str, name: str) -> Tensor:
    """mul.Tensor where each factor is expanded along dimensions of the other."""
    n = Node("mul", x, y)
    if n.needs(0):
        n.saves(y, f"gradient of {x.name}, its factor")
    if n.needs(1):
        n.saves(x, f"gradient of {y.name}, its factor")
    full, dtype = dims(target), promote(x, y)
    out = n.makes(full, dtype, None, name)
    n.gradient(1, dims=full, dtype=dtype, memory="grad")
    n.gradient(0, dims=full, dtype=dtype, memory="grad")
    return n.output(out)


def selective_state_update(state: Tensor, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor,
                           z: Tensor, dt_bias: Tensor) -> Tensor:
    """One token: x, dt, z: (b, l), b and c: (b, o). The new state is copied over the old one."""
    dtype = x.dtype
    dt = add(dt, cast(dt_bias, dt.dtype), "time step")
    dt = softplus(dt)
    decay = exp(outer(view(cast(dt, "fp32"), "b l 1"), a, "b l o", "time step·A"), "decay")
    change = outer(view(cast(dt, "fp32"), "b l 1"), view(cast(b, "fp32"), "b 1 o"), "b l o", "time step·B")
    update = mul(change, view(cast(x, "fp32"), "b l 1"), "update of the state")
    new = add(mul(state, decay, "state, decayed"), update, "state")
    out = view(bmm(cast(new, c.dtype), view(c, "b o 1")), "b l")
    out = add(out, mul(x, d, "input·D"), "with input·D")
    out = mul(out, activation(z, "silu"), "gated")
    low = cast(out, dtype)
    del change, out
    return low
