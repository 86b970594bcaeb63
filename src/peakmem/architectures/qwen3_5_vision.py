"""Qwen3.5 with its tower, as transformers 5.24 runs it (models/qwen3_5/modeling_qwen3_5.py,
Qwen3_5ForConditionalGeneration), on text alone: the tower stands by, and no gradient reaches it."""

from __future__ import annotations

from peakmem.architectures import qwen3_5, qwen3_next, qwen_tower
from peakmem.architectures.definition import Definition, Layers
from peakmem.architectures.delta_net import gated_delta_net
from peakmem.architectures.gemma4_vision import unreached
from peakmem.architectures.llava import TEXT, beside
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor

MIRRORS = ("transformers 5.24.0 models/qwen3_5/modeling_qwen3_5.py, Qwen3_5ForConditionalGeneration, without fla and "
           "causal-conv1d")


def define(m: Structure) -> Definition:
    for row in qwen_tower.rows(m):
        if isinstance(row, Layers):
            yield row._replace(block=lambda kind: unreached(qwen_tower.block_rows(m)))
        else:
            yield row._replace(reached=False)
    yield from beside(qwen3_5.define(m))


def forward(m: Structure, ids: Tensor) -> Tensor:
    def mixer(x: Tensor) -> Tensor:
        return gated_delta_net(m, x, together=False)

    return causal_lm(m, lambda: qwen3_next.model(m, ids, mixer, qwen3_5.grid_table, TEXT), f"{TEXT}.embed_tokens")
