"""Mamba, as transformers 5.24 runs it (models/mamba/modeling_mamba.py): a state instead of attention."""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.definition import Definition, Layers, Row, embedding, linear, rms_norm
from peakmem.estimate.structure import Structure

MIRRORS = "transformers 5.24.0 models/mamba/modeling_mamba.py, without mamba-ssm and causal-conv1d"
RUNS = ("inference",)
UNKNOWN = ("what Mamba's selective scan makes on the way is not known to peakmem: it runs token by token without the "
           "mamba-ssm package, and in one kernel with it")


def define(m: Structure) -> Definition:
    yield from embedding("backbone.embeddings", "V", "h")
    yield Layers("backbone.layers", lambda kind: block_rows(m))
    yield from rms_norm("backbone.norm_f")
    if not m.has("tied"):
        yield from linear("lm_head", "V", "h")


def block_rows(m: Structure) -> Iterator[Row]:
    yield from rms_norm("norm")
    yield from mixer_rows(m, "mixer")


def mixer_rows(m: Structure, name: str, normed: bool = False) -> Iterator[Row]:
    """MambaMixer; normed: Jamba's, with norms of the time step, B and C."""
    biased = m.has("mixer_bias")
    yield Row(f"{name}.A_log", "l o")
    yield Row(f"{name}.D", "l")
    yield Row(f"{name}.conv1d.weight", "l 1 q")
    if m.has("conv_bias"):
        yield Row(f"{name}.conv1d.bias", "l")
    yield from linear(f"{name}.in_proj", "(2 l)", "h", biased)
    yield from linear(f"{name}.x_proj", "R+2*o", "l")
    yield from linear(f"{name}.dt_proj", "l", "R", True)
    yield from linear(f"{name}.out_proj", "h", "l", biased)
    if normed:
        yield from rms_norm(f"{name}.dt_layernorm", "R")
        yield from rms_norm(f"{name}.b_layernorm", "o")
        yield from rms_norm(f"{name}.c_layernorm", "o")


def states(m: Structure, kind: str) -> Iterator[tuple[str, str, str]]:
    """What a layer remembers: name, shape, dtype."""
    yield "last tokens before the convolution", "b l q", ""
    yield "state", "b l o", "fp32"
