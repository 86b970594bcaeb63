"""Gemma 2, as transformers 5.24 runs it (models/gemma2/modeling_gemma2.py): more norms, capped scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from peakmem.architectures import llama
from peakmem.architectures.definition import Definition, Layers, Row, lm_head, rms_norm, rotary_buffers
from peakmem.architectures.gemma import model, scaled_embedding
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor
from peakmem.estimate.weights import rms_plus_one

MIRRORS = "transformers 5.24.0 models/gemma2/modeling_gemma2.py"


def define(m: Structure) -> Definition:
    yield from scaled_embedding()
    yield Layers("model.layers", lambda kind: block_rows(m))
    yield from rms_norm("model.norm")
    yield from rotary_buffers(m)
    yield from lm_head(m)


def block_rows(m: Structure) -> Iterator[Row]:
    yield from llama.block_rows(m)
    yield from rms_norm("pre_feedforward_layernorm")
    yield from rms_norm("post_feedforward_layernorm")


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: model(m, ids, block, ("full", "sliding")), "model.embed_tokens")


def block(m: Structure, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None,
          position_ids: Tensor) -> Tensor:
    return sandwich(m, x, cos, sin, mask, llama.attention)


def sandwich(m: Structure, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None,
             attention: Callable[..., tuple[Tensor, Tensor | None]]) -> Tensor:
    """A layer that normalises before and after each of its blocks."""
    residual = x
    x = rms_plus_one(x, "input_layernorm")
    x, probabilities = attention(m, x, cos, sin, mask)
    x = rms_plus_one(x, "post_attention_layernorm")
    x = residual + x
    residual = x
    x = rms_plus_one(x, "pre_feedforward_layernorm")
    x = llama.mlp(m, x)
    x = rms_plus_one(x, "post_feedforward_layernorm")
    x = residual + x
    del probabilities
    return x
