"""Mamba 2's scan in chunks, as transformers runs it without the mamba-ssm package.

Source: mamba2_chunk_scan and mamba2_selective_state_update of models/nemotron_h/modeling_nemotron_h.py in transformers
5.24, line for line; models/mamba2 has the same. Heads are the group (Gm rm): rm heads share one of Gm groups; em: size
of a head, o: of its state, cm: tokens of a chunk, nc: chunks.
"""

from __future__ import annotations

from peakmem.estimate.attention import bmm
from peakmem.estimate.delta_ops import cumsum, exp, masked_fill, pad_tokens, softplus
from peakmem.estimate.einsum import einsum
from peakmem.estimate.layout import Dims
from peakmem.estimate.node import Node
from peakmem.estimate.ops import activation, add, cast, mul, sub
from peakmem.estimate.positions import made
from peakmem.estimate.selective_scan import outer
from peakmem.estimate.shapes import (
    cat,
    clone,
    contiguous,
    expand,
    piece,
    regroup,
    reshape,
    select,
    swap,
    view,
)
from peakmem.estimate.slices import clamp
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor

HEADS = "(Gm rm)"


def chunk_scan(m: Structure, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor,
               dt_bias: Tensor) -> tuple[Tensor, Tensor | None]:
    """x: (b, s, heads, em), dt: (b, s, heads), b and c: (b, s, Gm, o): the output, and for a cache the last state."""
    dt = add(dt, cast(dt_bias, dt.dtype), "time steps")
    dt = softplus(dt)
    dt = clamp(dt, 2)
    x = cast(x, "fp32")
    b = each_head(cast(b, "fp32"))
    c = each_head(cast(c, "fp32"))
    whole = m.has("whole_chunks")
    residual = mul(view(d, f"{HEADS} 1"), pad_tokens(x, whole, 1, "cm"), "input·D")
    x = mul(x, cast(view(dt, f"b s {HEADS} 1"), "fp32"), "input·time steps")
    a = mul(cast(a, "fp32"), cast(dt, "fp32"), "time steps·A")
    together = chunks(x, whole), chunks(a, whole), chunks(b, whole), chunks(c, whole)
    x, a, b, c = together
    del together
    a = swap(a, f"b {HEADS} nc cm")
    total = cumsum(a)
    within = exp(segment_sum(a, "cm"), "decay within a chunk")
    scores = einsum(c, b, f"b nc cm cm' {HEADS}", f"b nc cm' {HEADS} o")
    masked = mul(scores, swap(within, f"b nc cm cm' {HEADS}"), "scores, decayed")
    diagonal = einsum(masked, x, f"b nc cm {HEADS} em", f"b nc cm' {HEADS} em")
    decay = exp(sub(piece(total, 3, ()), total), "decay to the chunk's end")
    b_decay = mul(b, view(swap(decay, f"b nc cm {HEADS}"), f"b nc cm {HEADS} 1"), "B, decayed")
    states = einsum(b_decay, x, f"b nc {HEADS} em o")
    previous = made(f"b 1 {HEADS} em o", states.dtype, "state before the first token")
    states = cat([previous, states], f"b nc+1 {HEADS} em o", "states")
    between = exp(segment_sum(before_the_first(select(total, 3)), "nc+1"), "decay between chunks")
    between = swap(between, f"b nc+1' nc+1 {HEADS}")
    new = einsum(between, states, f"b nc+1 {HEADS} em o", f"b nc+1' {HEADS} em o")
    states, last = piece(new, 1, "nc"), select(new, 1)
    out_decay = exp(total, "decay from the chunk's start")
    c_states = einsum(c, states, f"b nc cm {HEADS} em")
    rest = mul(c_states, view(swap(out_decay, f"b nc cm {HEADS}"), f"b nc cm {HEADS} 1"), "output of earlier chunks")
    out = contiguous(add(diagonal, rest, "output"))
    out = reshape(out, f"b (nc cm) {HEADS} em")
    out = add(out, residual, "with input·D")
    out = regroup(out, f"b s {HEADS} em") if whole else piece(out, 1, "s")
    del previous, b_decay, masked, decay
    return out, last if m.run == "inference" else None


def each_head(x: Tensor) -> Tensor:
    """repeat_interleave(heads of a group, dim=2): expanded, copied, flattened; backward sums what was expanded."""
    return view(clone(expand(view(x, "b s Gm 1 o"), "b s Gm rm o")), f"b s {HEADS} o")


def chunks(x: Tensor, whole: bool) -> Tensor:
    """reshape_into_chunks: padded to whole chunks, then seen by chunks."""
    x = pad_tokens(x, whole, 1, "cm")
    return reshape(x, (x.dims[0], ("nc",), ("cm",), *x.dims[2:]))


def segment_sum(x: Tensor, letter: str) -> Tensor:
    """Sums of every stretch of the last dimension, whose letter this is."""
    x = expand(view(x, (*x.dims, ())), (*x.dims, (f"{letter}'",)))
    mask = triangle(letter)
    x = masked_fill(x, inverted(mask))
    total = cumsum(x)
    mask = triangle(letter)
    total = masked_fill(total, inverted(mask))
    del mask
    return total


def triangle(letter: str) -> Tensor:
    """tril of ones."""
    mask = made(f"{letter} {letter}'", "bool", "ones")
    mask = made(f"{letter} {letter}'", "bool", "lower triangle")
    return mask


def inverted(mask: Tensor) -> Tensor:
    return made(" ".join(group[0] for group in mask.dims), "bool", "upper triangle")


def before_the_first(x: Tensor) -> Tensor:
    """F.pad by one chunk at the front."""
    n = Node("pad", x)
    dims: Dims = (*x.dims[:-1], ("nc+1",))
    out = n.makes(dims, x.dtype, None, "padded")
    n.gradient(0, "clone")
    return n.output(out)


def selective_state_update(state: Tensor, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor,
                           dt_bias: Tensor, z: Tensor | None = None) -> Tensor:
    """One token: x, z: (b, heads, em), dt: (b, heads), b and c: (b, Gm, o). The new state is copied over the old one.

    z: what gates the output, if anything does.
    """
    full = f"b {HEADS} em o"
    bias = cast(expand(view(dt_bias, f"{HEADS} 1"), f"{HEADS} em"), dt.dtype)
    dt = outer(view(dt, f"b {HEADS} 1"), bias, f"b {HEADS} em", "time step")
    del bias
    dt = view(softplus(dt), f"b {HEADS} em 1")
    decay = exp(outer(cast(dt, "fp32"), view(a, f"{HEADS} 1 1"), full, "time step·A"), "decay")
    b = view(of_each_head(b), f"b {HEADS} 1 o")
    change = outer(dt, b, full, "time step·B")
    update = mul(change, view(x, f"b {HEADS} em 1"), "update of the state")
    new = add(mul(state, decay, "state, decayed"), update, "state")
    cast(new, state.dtype)  # what copy_ takes, where the prompt's einsum has left a state in autocast's dtype
    c = of_each_head(c)
    new = cast(new, c.dtype)
    out = bmm(view(new, "(b Gm rm) em o"), view(c, "(b Gm rm) o 1"))
    out = view(out, f"b {HEADS} em")
    out = cast(add(out, mul(x, view(d, f"{HEADS} 1"), "input·D"), "with input·D"), out.dtype)
    if z is not None:
        out = mul(out, activation(z, "silu"), "gated")
    low = cast(out, x.dtype)
    del decay, change, update, new, out
    return low


def of_each_head(x: Tensor) -> Tensor:
    """expand, then contiguous."""
    return view(contiguous(expand(view(x, "b Gm 1 o"), "b Gm rm o")), f"b {HEADS} o")
