"""Qwen3.5's mixtures, their text model (transformers 5.24, models/qwen3_5_moe/modeling_qwen3_5_moe.py).

Qwen3.5's layers with Qwen3-Next's experts.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.definition import Definition, Row, decoder, rms_norm
from peakmem.architectures.delta_net import gated_delta_net
from peakmem.architectures.mixtral import moe_lm
from peakmem.architectures.qwen2_moe import sparse_rows
from peakmem.architectures.qwen3_5 import delta_rows, grid_table
from peakmem.architectures.qwen3_next import gated_attention_rows, model
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor

MIRRORS = ("transformers 5.24.0 models/qwen3_5_moe/modeling_qwen3_5_moe.py, Qwen3_5MoeForCausalLM, without fla and "
           "causal-conv1d, experts implementation grouped_mm")


def define(m: Structure) -> Definition:
    yield from decoder(m, lambda kind: block_rows(m, kind))


def block_rows(m: Structure, kind: str) -> Iterator[Row]:
    yield from gated_attention_rows(m) if kind == "full" else delta_rows()
    yield from sparse_rows()
    yield from rms_norm("input_layernorm")
    yield from rms_norm("post_attention_layernorm")


def forward(m: Structure, ids: Tensor) -> Tensor:
    return moe_lm(m, lambda: model(m, ids, lambda x: gated_delta_net(m, x, together=False), grid_table))
