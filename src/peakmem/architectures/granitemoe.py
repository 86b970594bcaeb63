"""Granite's mixtures, as transformers 5.24 runs them (models/granitemoe/modeling_granitemoe.py)."""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures import granite
from peakmem.architectures.definition import Definition, Row, attention_rows, decoder, rms_norm
from peakmem.architectures.mixtral import expert_rows, moe_lm, router_rows
from peakmem.estimate.experts import chosen_first, experts
from peakmem.estimate.shapes import reshape, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope

MIRRORS = "transformers 5.24.0 models/granitemoe/modeling_granitemoe.py, experts implementation grouped_mm"


def define(m: Structure) -> Definition:
    yield from decoder(m, lambda kind: block_rows(m))


def block_rows(m: Structure) -> Iterator[Row]:
    yield from attention_rows(m.has("attention_bias"))
    yield from rms_norm("input_layernorm")
    yield from rms_norm("post_attention_layernorm")
    yield from router_rows(m, "block_sparse_moe.router")
    yield from expert_rows(m, "block_sparse_moe.experts")


def forward(m: Structure, ids: Tensor) -> Tensor:
    return moe_lm(m, lambda: granite.model(m, ids, moe))


def moe(m: Structure, x: Tensor) -> Tensor:
    """GraniteMoeMoE. The router's logits live until it returns."""
    with scope("block_sparse_moe"):
        shape = x.dims
        rows = reshape(x, "(b s) h")
        logits, top_k_weights, top_k_index = chosen_first(m, rows)
        output = experts(m, rows, top_k_index, top_k_weights)
        output = view(output, shape)
        del logits, rows
        return output
