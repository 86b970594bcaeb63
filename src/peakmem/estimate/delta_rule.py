"""The gated delta rule in chunks of 64 tokens, as transformers' own PyTorch code runs it without the fla package.

Source: torch_chunk_gated_delta_rule and torch_recurrent_gated_delta_rule of models/qwen3_next/modeling_qwen3_next.py
in transformers 5.24, line for line. Heads are the group (ak rv): rv value heads share one of ak key heads.
"""

from __future__ import annotations

from peakmem.estimate.delta_ops import (
    by_batch,
    cumsum,
    exp,
    keys_across,
    masked_fill,
    pad_tokens,
    pairwise_difference,
    put_at,
    solve_triangular,
    to_dtype,
    without_padding,
)
from peakmem.estimate.ops import add, mul, rsqrt, scale, shift, sub, total_over
from peakmem.estimate.positions import made
from peakmem.estimate.shapes import clone, expand, piece, reshape, select, swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, current

HEADS = "(ak rv)"


def chunk_delta_rule(m: Structure, query: Tensor, key: Tensor, value: Tensor, decay: Tensor,
                     beta: Tensor) -> tuple[Tensor, Tensor | None]:
    """(b, s, heads, size) each, decay and beta (b, s, heads): the output, and the state after the last token."""
    dtype = query.dtype
    query, key, value, beta, decay = prepared(m, query, key, value, beta, decay)
    whole = m.has("whole_chunks")
    query, key, value = pad_tokens(query, whole), pad_tokens(key, whole), pad_tokens(value, whole)
    beta, decay = pad_tokens(beta, whole), pad_tokens(decay, whole)
    v_beta = mul(value, view(beta, f"b {HEADS} (nc 64) 1"), "values·beta")
    k_beta = mul(key, view(beta, f"b {HEADS} (nc 64) 1"), "keys·beta")
    query, key, k_beta = (view(x, f"b {HEADS} nc 64 ek") for x in (query, key, k_beta))
    v_beta = view(v_beta, f"b {HEADS} nc 64 ev")
    decay = view(decay, f"b {HEADS} nc 64")
    mask = made("64 64'", "bool", "ones")
    mask = made("64 64'", "bool", "upper triangle")
    cum_decay = cumsum(decay)
    pairwise_decay = exp(masked_fill(pairwise_difference(cum_decay), mask), "pairwise decay")
    transposed = f"b {HEADS} nc ek 64'"
    ut_system = mul(by_batch(k_beta, keys_across(key, transposed)), pairwise_decay, "triangular system")
    intra = mul(by_batch(query, keys_across(key, transposed)), pairwise_decay, "scores within a chunk")
    decayed_k_beta = mul(k_beta, view(exp(cum_decay, "decay"), f"b {HEADS} nc 64 1"), "keys·beta, decayed")
    new_values = solve_triangular(ut_system, v_beta, "new values")
    k_cumdecay = solve_triangular(ut_system, decayed_k_beta, "keys, decayed")
    state = made(f"b {HEADS} ek ev", "fp32", "state")
    core = current().new(new_values.dims, "fp32", new_values.memory, f"{current().scope}/output of each chunk")
    query = mul(query, view(exp(cum_decay, "decay"), f"b {HEADS} nc 64 1"), "queries, decayed")
    left = exp(sub(piece(cum_decay, 3, ()), cum_decay), "decay to the chunk's end")
    key = mul(key, view(left, f"b {HEADS} nc 64 1"), "keys, decayed to the chunk's end")
    del left
    chunk_decay = view(exp(select(cum_decay, 3), "chunk decay"), f"b {HEADS} nc 1 1")
    for _ in range(m.pieces):
        v_new = sub(select(new_values, 2), by_batch(select(k_cumdecay, 2), state), "new values of the chunk")
        inter = by_batch(select(query, 2), state)
        core = put_at(core, 2, add(inter, by_batch(select(intra, 2), v_new), "output of the chunk"))
        kept = mul(state, select(chunk_decay, 2), "state, decayed")
        state = add(kept, by_batch(swap(select(key, 2), f"b {HEADS} ek 64"), v_new), "state")
        del kept
    last = state if m.run == "inference" else None
    del state
    core = reshape(core, f"b {HEADS} (nc 64) ev")
    core = without_padding(core, f"b {HEADS} s ev", whole)
    core = to_dtype(swap(core, f"b s {HEADS} ev"), dtype)
    del v_beta, decayed_k_beta, mask, v_new, inter
    return core, last


def prepared(m: Structure, *given: Tensor) -> list[Tensor]:
    """Each value head gets its queries and keys; all in fp32 and head by head; queries and keys of length one."""
    query, key, *others = given
    if m.has("grouped_values"):
        query, key = repeat_interleave(query), repeat_interleave(key)
    del given
    together = query, key, *others
    query, key, *others = (to_dtype(swap(x, (x.dims[0], x.dims[2], x.dims[1], *x.dims[3:])), "fp32") for x in together)
    del together
    query = unit_length(query)
    key = unit_length(key)
    return [scale(query, "queries, scaled"), key, *others]


def repeat_interleave(x: Tensor) -> Tensor:
    """repeat_interleave(rv, dim=2): expanded, copied, flattened; backward sums what was expanded."""
    return view(clone(expand(view(x, "b s ak 1 ek"), "b s ak rv ek")), f"b s {HEADS} ek")


def unit_length(x: Tensor) -> Tensor:
    """l2norm."""
    inverse = rsqrt(shift(total_over(mul(x, x, "square"), 3, keep=True)))
    return mul(x, inverse, "of length one")


def recurrent_delta_rule(m: Structure, query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor,
                         state: Tensor) -> tuple[Tensor, Tensor]:
    """torch_recurrent_gated_delta_rule for one token: the output, and the next state."""
    dtype = query.dtype
    query, key, value, beta, decay = prepared(m, query, key, value, beta, decay)
    core = made(f"b {HEADS} s ev", "fp32", "output of the step")
    decay_t = view(exp(view(decay, f"b {HEADS}")), f"b {HEADS} 1 1")
    last = mul(state, decay_t, "state, decayed")
    predicted = total_over(mul(last, view(key, f"b {HEADS} ek 1"), "state·key"), 2)
    delta = mul(sub(view(value, f"b {HEADS} ev"), predicted), view(beta, f"b {HEADS} 1"), "correction")
    change = made(f"b {HEADS} ek ev", "fp32", "key·correction")
    last = add(last, change, "state")
    del change
    total_over(mul(last, view(query, f"b {HEADS} ek 1"), "state·query"), 2)
    core = to_dtype(swap(core, f"b s {HEADS} ev"), dtype)
    del delta, predicted, decay_t
    return core, last
