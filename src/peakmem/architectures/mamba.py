"""Mamba, as transformers 5.24 runs it (models/mamba/modeling_mamba.py): a state instead of attention."""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.definition import Definition, Layers, Row, embedding, linear, rms_norm
from peakmem.estimate.causal_conv import remembered_conv1d
from peakmem.estimate.delta_ops import exp
from peakmem.estimate.inference import state
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.norms import l2_norm
from peakmem.estimate.ops import cast, neg, sub
from peakmem.estimate.selective_scan import selective_scan, selective_state_update, time_steps
from peakmem.estimate.shapes import piece, select, split, swap
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Parameter, Tensor, current, scope
from peakmem.estimate.weights import embed, has, project, rms, weight

MIRRORS = "transformers 5.24.0 models/mamba/modeling_mamba.py, without mamba-ssm and causal-conv1d"


def define(m: Structure) -> Definition:
    yield from embedding("backbone.embeddings", "V", "h")
    yield Layers("backbone.layers", lambda kind: block_rows(m))
    yield from rms_norm("backbone.norm_f")
    if not m.has("tied"):
        yield from linear("lm_head", "V", "h")


def block_rows(m: Structure) -> Iterator[Row]:
    yield from rms_norm("norm")
    yield from mixer_rows(m, "mixer")


def mixer_rows(m: Structure, name: str, norms: str = "") -> Iterator[Row]:
    """MambaMixer; norms: of the time step, B and C, `trained` (Jamba) or `fixed` (Falcon-Mamba)."""
    biased = m.has("mixer_bias")
    yield Row(f"{name}.A_log", "l o")
    yield Row(f"{name}.D", "l")
    yield Row(f"{name}.conv1d.weight", "l 1 q")
    if m.has("conv_bias"):
        yield Row(f"{name}.conv1d.bias", "l")
    yield from linear(f"{name}.in_proj", "(2 l)", "h", biased)
    yield from linear(f"{name}.x_proj", "R+2*o", "l")
    word = "linear" if runs_time_steps(m, norms) else "linear, read"
    yield Row(f"{name}.dt_proj.weight", "l R", word)
    yield Row(f"{name}.dt_proj.bias", "l", word)
    yield from linear(f"{name}.out_proj", "h", "l", biased)
    if norms == "trained":
        yield from rms_norm(f"{name}.dt_layernorm", "R")
        yield from rms_norm(f"{name}.b_layernorm", "o")
        yield from rms_norm(f"{name}.c_layernorm", "o")


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: model(m, ids), "backbone.embeddings", casts=True)


def model(m: Structure, ids: Tensor, norms: str = "") -> Tensor:
    with scope("backbone"):
        x = inputs_embeds = embed(ids, "embeddings")
        for _ in m.layers("layers"):
            x = m.layer(block, x, norms)
        x = rms(x, "norm_f")
        del inputs_embeds
        return x


def block(m: Structure, x: Tensor, norms: str) -> Tensor:
    residual = x
    x = rms(cast(x, m.dtype, "input of the norm"), "norm")
    if m.has("fp32_residual"):
        residual = cast(residual, "fp32", "stream in fp32")
    x = mixer(m, x, "mixer", norms)
    return residual + x


def mixer(m: Structure, x: Tensor, name: str, norms: str = "") -> Tensor:
    """MambaMixer; norms: of the time step, B and C, `trained` (Jamba) or `fixed` (Falcon-Mamba)."""
    with scope(name):
        dtype = x.dtype
        projected = swap(project(x, "in_proj"), "b (2 l) s")
        a = neg(exp(cast(weight("A_log"), "fp32")))
        if m.run == "training" and norms != "trained":
            for_the_kernel()
        x, gate = split(projected, 1, ["l", "l"])
        x = remembered_conv1d(m, x, m.activation, "l")
        if m.run == "inference" and not current().single:
            x = piece(x, 2, "s")
        x = swap(x, "b s l")
        time_step, b, c = split(project(x, "x_proj"), 2, ["R", "o", "o"])
        if norms:
            norm = rms if norms == "trained" else weightless
            time_step, b, c = norm(time_step, "dt_layernorm"), norm(b, "b_layernorm"), norm(c, "c_layernorm")
        if runs_time_steps(m, norms):
            time_step = time_steps_by_layer(time_step)
        with scope("dt_proj"):
            if not runs_time_steps(m, norms):
                time_step = time_steps(m, read("weight"), time_step)
            bias = cast(read("bias"), "fp32", "bias in fp32")
        if current().single:
            kept = state("state", "b l o", "fp32")
            x_of, step, z = select(swap(x, "b l s"), 2), select(time_step, 2), select(gate, 2)
            out = selective_state_update(kept, x_of, step, a, select(b, 1), select(c, 1), weight("D"), z, bias)
        else:
            out, final_state = selective_scan(m, swap(x, "b l s"), time_step, a, b, c, cast(weight("D"), "fp32"), gate,
                                              bias)
            if m.run == "inference":
                state("state", "b l o", "fp32")
        return project(cast(swap(out, "b s l"), dtype), "out_proj")


def weightless(x: Tensor, name: str) -> Tensor:
    """FalconMambaWeightlessRMSNorm."""
    with scope(name):
        return l2_norm(x)


def runs_time_steps(m: Structure, norms: str) -> bool:
    """Whether dt_proj is run as a layer, its bias taken off again, with quantised weights: not Mamba's own way."""
    return bool(norms) and bool(m.stored.scheme)


def time_steps_by_layer(x: Tensor) -> Tensor:
    """`(dt_proj(x) - dt_proj.bias).transpose(1, 2)`."""
    made = project(x, "dt_proj")
    with scope("dt_proj"):
        return swap(sub(made, read("bias")), "b l s")


def for_the_kernel() -> None:
    """What mamba_inner_fn is called with, though without its package it returns at once."""
    arguments: list[Parameter | Tensor] = []
    with scope("out_proj"):
        if has("bias"):
            arguments.append(cast(weight("bias"), "fp32"))
    arguments.append(cast(weight("D"), "fp32"))
    with scope("dt_proj"):
        arguments.append(cast(read("bias"), "fp32"))
    del arguments


def read(name: str) -> Parameter:
    """A parameter of a linear layer that is not run, whether or not peft has put an adapter around it."""
    return weight(name if has(name) else f"base_layer.{name}")
