"""Mamba 2, as transformers 5.24 runs it (models/mamba2/modeling_mamba2.py): a state for each head, in chunks."""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.definition import Definition, Layers, Row, embedding, linear, rms_norm
from peakmem.architectures.nemotron_h import mixer, mixer_rows
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.ops import cast
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, rms

MIRRORS = "transformers 5.24.0 models/mamba2/modeling_mamba2.py, without mamba-ssm and causal-conv1d"


def define(m: Structure) -> Definition:
    yield from embedding("backbone.embeddings", "V", "h")
    yield Layers("backbone.layers", lambda kind: block_rows(m))
    yield from rms_norm("backbone.norm_f")
    if not m.has("tied"):
        yield from linear("lm_head", "V", "h")


def block_rows(m: Structure) -> Iterator[Row]:
    yield from rms_norm("norm")
    yield from mixer_rows(m)


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: model(m, ids), "backbone.embeddings", casts=True)


def model(m: Structure, ids: Tensor) -> Tensor:
    with scope("backbone"):
        x = inputs_embeds = embed(ids, "embeddings")
        for _ in m.layers("layers"):
            x = m.layer(block, x)
        x = rms(x, "norm_f")
        del inputs_embeds
        return x


def block(m: Structure, x: Tensor) -> Tensor:
    residual = x
    x = rms(cast(x, m.dtype, "input of the norm"), "norm")
    if m.has("fp32_residual"):
        residual = cast(residual, "fp32", "stream in fp32")
    x = mixer(m, x)
    return residual + x
