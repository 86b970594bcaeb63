"""Falcon-Mamba, as transformers 5.24 runs it (models/falcon_mamba/modeling_falcon_mamba.py).

Mamba with norms of the time step, B and C that have no trained weights.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures import mamba
from peakmem.architectures.definition import Definition, Layers, Row, buffer, embedding, lm_head, rms_norm
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor

MIRRORS = ("transformers 5.24.0 models/falcon_mamba/modeling_falcon_mamba.py, without mamba-ssm, causal-conv1d and "
           "mambapy")


def define(m: Structure) -> Definition:
    yield from embedding("backbone.embeddings", "V", "h")
    yield Layers("backbone.layers", lambda kind: block_rows(m))
    yield from rms_norm("backbone.norm_f")
    yield from lm_head(m)


def block_rows(m: Structure) -> Iterator[Row]:
    yield from rms_norm("norm")
    yield from mamba.mixer_rows(m, "mixer", "fixed")
    for name, size in (("dt", "l"), ("b", "o"), ("c", "o")):
        yield from buffer(f"mixer.{name}_layernorm.weight", size)


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: mamba.model(m, ids, "fixed"), "backbone.embeddings", casts=True)
