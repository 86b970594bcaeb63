"""Nemotron-H, as transformers 5.24 runs it (models/nemotron_h/modeling_nemotron_h.py).

Each layer is one thing behind one norm: Mamba 2, attention without positions, experts, or a plain feed-forward.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.definition import Definition, Layers, Row, buffer, embedding, linear, rms_norm
from peakmem.architectures.jamba import attention
from peakmem.estimate.causal_conv import remembered_conv1d
from peakmem.estimate.chunk_scan import HEADS, chunk_scan, selective_state_update
from peakmem.estimate.delta_ops import exp
from peakmem.estimate.experts import experts
from peakmem.estimate.inference import state
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.masks import layer_masks
from peakmem.estimate.ops import activation, add, cast, mean_last, mul, neg, rsqrt, shift, square
from peakmem.estimate.positions import positions
from peakmem.estimate.routers import group_router
from peakmem.estimate.shapes import piece, reshape, select, split, swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, current, scope
from peakmem.estimate.weights import embed, project, weight

MIRRORS = ("transformers 5.24.0 models/nemotron_h/modeling_nemotron_h.py, without mamba-ssm and causal-conv1d, "
           "experts implementation grouped_mm")


def define(m: Structure) -> Definition:
    yield from embedding("model.embeddings", "V", "h")
    yield Layers("model.layers", lambda kind: block_rows(m, kind))
    yield from rms_norm("model.norm_f")
    if not m.has("tied"):
        yield from linear("lm_head", "V", "h")


def block_rows(m: Structure, kind: str) -> Iterator[Row]:
    yield from rms_norm("norm")
    rows = {"full": attention_rows, "mamba": mixer_rows, "moe": sparse_rows, "mlp": plain_rows}
    yield from rows[kind](m)


def attention_rows(m: Structure) -> Iterator[Row]:
    yield from linear("mixer.q_proj", "(a d)", "h")
    yield from linear("mixer.k_proj", "(k d)", "h")
    yield from linear("mixer.v_proj", "(k d)", "h")
    yield from linear("mixer.o_proj", "h", "(a d)")


def mixer_rows(m: Structure, name: str = "mixer", normed: bool = True,
               output_biased: bool | None = None) -> Iterator[Row]:
    """NemotronHMamba2Mixer: gate, convolved part and time steps in one projection.

    normed: the scan's output has a norm; output_biased: the last projection's bias, where it is not the first's.
    """
    biased = m.has("mixer_bias")
    yield Row(f"{name}.dt_bias", HEADS)
    yield Row(f"{name}.A_log", HEADS)
    yield Row(f"{name}.D", HEADS)
    yield Row(f"{name}.conv1d.weight", "am*em+2*Gm*o 1 q")
    if m.has("conv_bias"):
        yield Row(f"{name}.conv1d.bias", "am*em+2*Gm*o")
    yield from linear(f"{name}.in_proj", "2*am*em+2*Gm*o+am", "h", biased)
    if normed:
        yield from rms_norm(f"{name}.norm", "(Gm rm em)")
    yield from linear(f"{name}.out_proj", "h", "(Gm rm em)", biased if output_biased is None else output_biased)


def sparse_rows(m: Structure) -> Iterator[Row]:
    """Experts without a gate, on a latent where there is one."""
    width = "lx" if m.has("expert_latent") else "h"
    yield Row("mixer.experts.up_proj", f"E x {width}", "expert")
    yield Row("mixer.experts.down_proj", f"E {width} x", "expert")
    yield Row("mixer.gate.weight", "E h", "", "fp32")
    yield from buffer("mixer.gate.e_score_correction_bias", "E", "fp32")
    yield from linear("mixer.shared_experts.up_proj", "y", "h", m.has("mlp_bias"))
    yield from linear("mixer.shared_experts.down_proj", "h", "y", m.has("mlp_bias"))
    if m.has("expert_latent"):
        yield from linear("mixer.fc1_latent_proj", "lx", "h", m.has("mlp_bias"))
        yield from linear("mixer.fc2_latent_proj", "h", "lx", m.has("mlp_bias"))


def plain_rows(m: Structure) -> Iterator[Row]:
    yield from linear("mixer.up_proj", "f", "h", m.has("mlp_bias"))
    yield from linear("mixer.down_proj", "h", "f", m.has("mlp_bias"))


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: model(m, ids), "model.embeddings")


def model(m: Structure, ids: Tensor) -> Tensor:
    with scope("model"):
        x = inputs_embeds = embed(ids, "embeddings")
        position_ids = positions()
        mask, = layer_masks(m, x.dtype, ("full",)).values()
        for kind in m.layers("layers"):
            x = m.layer(block, x, mask if kind == "full" else None, position_ids, kind)
        x = norm(x, "norm_f")
        del inputs_embeds
        return x


def block(m: Structure, x: Tensor, mask: Tensor | None, position_ids: Tensor, kind: str) -> Tensor:
    residual = x
    x = norm(cast(x, m.dtype, "input of the norm"), "norm")
    probabilities = None
    if kind == "mamba":
        x = mixer(m, x)
    elif kind == "full":
        x, probabilities = attention(m, x, mask, "mixer")
    else:
        x = moe(m, x) if kind == "moe" else plain(m, x, "mixer")
    x = residual + x
    del probabilities
    return x


def norm(x: Tensor, name: str) -> Tensor:
    """NemotronHRMSNorm: the product with the weight is in fp32, too."""
    with scope(name):
        h = cast(x, "fp32", "input in fp32")
        variance = mean_last(square(h))
        h = mul(h, rsqrt(shift(variance)), "normalised in fp32")
        return cast(mul(cast(weight("weight"), "fp32", "weight in fp32"), h, "output in fp32"), x.dtype, "output")


def mixer(m: Structure, x: Tensor, name: str = "mixer", act: str = "silu") -> Tensor:
    """NemotronHMamba2Mixer. name: of the module; act: after the convolution."""
    with scope(name):
        dtype = x.dtype
        projected = project(x, "in_proj")
        out, gate, variables = scanned(m, projected, act, [])
        out = gated_norm(out, gate, "norm")
        out = project(cast(out, dtype), "out_proj")
        del variables
        return out


def scanned(m: Structure, projected: Tensor, act: str, given: list[Tensor],
            gates: bool = False) -> tuple[Tensor, Tensor, tuple[Tensor | None, ...]]:
    """Convolution and scan of the mixer's projected input: the output, the gate, other variables of its forward().

    given: what was projected, a variable until the scan's parts are split; gates: a single token's scan is gated.
    """
    a = neg(exp(cast(weight("A_log"), "fp32")))
    gate, x, dt = split(projected, 2, [("Gm", "rm", "em"), "am*em+2*Gm*o", ("Gm", "rm")])
    x = remembered_conv1d(m, swap(x, "b am*em+2*Gm*o s"), act, "am*em+2*Gm*o")
    if m.run == "inference" and not current().single:
        x = piece(x, 2, "s")
    x = swap(x, "b s am*em+2*Gm*o")
    x, b, c = split(x, 2, [("Gm", "rm", "em"), ("Gm", "o"), ("Gm", "o")])
    given.clear()
    last = None
    if current().single:
        kept = state("state", f"b {HEADS} em o")
        x, b, c = view(select(x, 1), f"b {HEADS} em"), view(select(b, 1), "b Gm o"), view(select(c, 1), "b Gm o")
        z = view(gate, f"b {HEADS} em") if gates else None
        out = selective_state_update(kept, x, select(dt, 1), a, b, c, weight("D"), weight("dt_bias"), z)
        out = view(out, "b s (Gm rm em)")
        return out, gate, (a, x, dt, b, c)
    out, last = chunk_scan(m, view(x, f"b s {HEADS} em"), dt, a, view(b, "b s Gm o"), view(c, "b s Gm o"),
                           weight("D"), weight("dt_bias"))
    if last is not None:
        state("state", f"b {HEADS} em o", last.dtype)
    made = out
    return reshape(out, "b s (Gm rm em)"), gate, (a, x, dt, b, c, made, last)


def gated_norm(x: Tensor, gate: Tensor, name: str) -> Tensor:
    """NemotronHRMSNormGated: times silu of the gate, then each group by itself."""
    with scope(name):
        dtype = x.dtype
        x = cast(x, "fp32", "input in fp32")
        x = mul(x, activation(cast(gate, "fp32", "gate in fp32"), "silu"), "gated")
        groups = view(x, "b s Gm (rm em)")
        variance = mean_last(square(groups))
        groups = mul(groups, rsqrt(shift(variance)), "normalised in fp32")
        x = view(groups, "b s (Gm rm em)")
        return mul(weight("weight"), cast(x, dtype, "normalised"), "output")


def moe(m: Structure, x: Tensor) -> Tensor:
    """NemotronHMoE: chosen experts without a gate, perhaps on a latent, and shared ones."""
    with scope("mixer"):
        residuals = x
        logits, weights, numbers = group_router(m, x)
        x = view(x, "(b s) h")
        if m.has("expert_latent"):
            x = project(x, "fc1_latent_proj")
        x = experts(m, x, numbers, weights, lambda m, x: activation(x, m.activation), up="up_proj")
        if m.has("expert_latent"):
            x = project(x, "fc2_latent_proj")
        x = view(x, "b s h")
        x = add(x, plain(m, residuals, "shared_experts"))
        del logits, weights, numbers, residuals
        return x


def plain(m: Structure, x: Tensor, name: str) -> Tensor:
    """NemotronHMLP."""
    with scope(name):
        return project(activation(project(x, "up_proj"), m.activation), "down_proj")
