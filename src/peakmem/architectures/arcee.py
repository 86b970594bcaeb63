"""Arcee's AFM, as transformers 5.24 runs it (models/arcee/modeling_arcee.py): Llama with a plain feed-forward."""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures import llama
from peakmem.architectures.definition import Definition, Row, attention_rows, decoder, linear, rms_norm
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.ops import activation
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import project

MIRRORS = "transformers 5.24.0 models/arcee/modeling_arcee.py"


def define(m: Structure) -> Definition:
    yield from decoder(m, lambda kind: block_rows(m))


def block_rows(m: Structure) -> Iterator[Row]:
    biased = m.has("attention_bias")
    yield from attention_rows(biased)
    yield from plain_rows(m.has("mlp_bias"))
    yield from rms_norm("input_layernorm")
    yield from rms_norm("post_attention_layernorm")


def plain_rows(biased: bool) -> Iterator[Row]:
    """Two projections with an activation between them."""
    yield from linear("mlp.up_proj", "f", "h", biased)
    yield from linear("mlp.down_proj", "h", "f", biased)


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: llama.model(m, ids, block), "model.embed_tokens")


def block(m: Structure, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None,
          position_ids: Tensor) -> Tensor:
    return llama.pre_norm(x, lambda x: llama.attention(m, x, cos, sin, mask), lambda x: mlp(m, x))


def mlp(m: Structure, x: Tensor) -> Tensor:
    with scope("mlp"):
        return project(activation(project(x, "up_proj"), m.activation), "down_proj")
