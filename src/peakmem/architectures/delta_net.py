"""The gated delta net of Qwen3-Next and Qwen3.5: a short convolution, then a state that each token corrects.

Without the fla and causal-conv1d packages, as transformers' own PyTorch code runs it.
"""

from __future__ import annotations

from peakmem.estimate.causal_conv import remembered_conv1d
from peakmem.estimate.delta_ops import exp, softplus
from peakmem.estimate.delta_rule import chunk_delta_rule, recurrent_delta_rule
from peakmem.estimate.inference import state
from peakmem.estimate.ops import activation, add, cast, mean_last, mul, neg, rsqrt, shift, square
from peakmem.estimate.shapes import cat, reshape, split, swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, current, scope
from peakmem.estimate.weights import project, weight


def gated_delta_net(m: Structure, x: Tensor, together: bool) -> Tensor:
    """Qwen3NextGatedDeltaNet, or Qwen3_5GatedDeltaNet, whose projections are not together."""
    with scope("linear_attn"):
        mixed, parts, z, b, a, held = projections(x) if together else plain_projections(x)
        mixed = swap(mixed, "b cc s")
        mixed = remembered_conv1d(m, mixed, m.activation, "cc")
        mixed = swap(mixed, "b s cc")
        heads = ("ak",) if m.has("grouped_values") else ("ak", "rv")
        parts = split(mixed, 2, [(*heads, "ek"), (*heads, "ek"), ("ak", "rv", "ev")])
        by_head = f"b s ({' '.join(heads)}) ek"
        query, key = reshape(parts[0], by_head), reshape(parts[1], by_head)
        value = reshape(parts[2], "b s (ak rv) ev")
        beta = activation(b, "sigmoid")
        decay = mul(neg(exp(cast(weight("A_log"), "fp32"))), softplus(add(cast(a, "fp32"), weight("dt_bias"))), "decay")
        core, last = delta_rule(m, query, key, value, decay, beta)
        core = reshape(core, "(b s ak rv) ev")
        z = reshape(z, "(b s ak rv) ev")
        core = gated_norm(core, z, "norm")
        core = view(core, "b s (ak rv) ev")
        core = reshape(core, "b s (ak rv ev)")
        output = project(core, "out_proj")
        del held, beta, decay, last
        return output


def delta_rule(m: Structure, query: Tensor, key: Tensor, value: Tensor, decay: Tensor,
               beta: Tensor) -> tuple[Tensor, Tensor | None]:
    """In chunks, or for one token that is decoded: the output and the last state, which a cache gets a copy of."""
    if m.run == "inference" and current().single:
        kept = state("state", "b (ak rv) ek ev", "fp32")
        return recurrent_delta_rule(m, query, key, value, decay, beta, kept)
    core, last = chunk_delta_rule(m, query, key, value, decay, beta)
    if m.run == "inference":
        state("state", "b (ak rv) ek ev", "fp32")
    return core, last


Projected = tuple[Tensor, list[Tensor], Tensor, Tensor, Tensor, tuple[Tensor, ...]]


def projections(x: Tensor) -> Projected:
    """Queries, keys and values, joined and alone, then z, b, a, which lie in two projections by key head."""
    qkvz = project(x, "in_proj_qkvz")
    ba = project(x, "in_proj_ba")
    query, key, value, z = split(view(qkvz, "b s ak 2*ek+2*rv*ev"), 3, ["ek", "ek", ("rv", "ev"), ("rv", "ev")])
    b, a = split(view(ba, "b s ak 2*rv"), 3, ["rv", "rv"])
    value = reshape(value, "b s (ak rv) ev")
    z = reshape(z, "b s (ak rv) ev")
    b = reshape(b, "b s (ak rv)")
    a = reshape(a, "b s (ak rv)")
    parts = [reshape(query, "b s (ak ek)"), reshape(key, "b s (ak ek)"), reshape(value, "b s (ak rv ev)")]
    del query, key, value
    return cat(parts, "b s cc", "queries, keys, values"), parts, z, b, a, (qkvz, ba)


def plain_projections(x: Tensor) -> Projected:
    """Qwen3.5: four projections."""
    mixed = project(x, "in_proj_qkv")
    z = view(project(x, "in_proj_z"), "b s (ak rv) ev")
    return mixed, [], z, project(x, "in_proj_b"), project(x, "in_proj_a"), ()


def gated_norm(x: Tensor, gate: Tensor, name: str) -> Tensor:
    """Qwen3NextRMSNormGated: LlamaRMSNorm, times silu of the gate in fp32."""
    with scope(name):
        h = cast(x, "fp32", "input in fp32")
        variance = mean_last(square(h))
        h = mul(h, rsqrt(shift(variance)), "normalised in fp32")
        h = mul(weight("weight"), cast(h, x.dtype, "normalised"), "weighted")
        h = mul(h, activation(cast(gate, "fp32", "gate in fp32"), "silu"), "gated")
        return cast(h, x.dtype, "output")
