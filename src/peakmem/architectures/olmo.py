"""OLMo, as transformers 5.24 runs it (models/olmo/modeling_olmo.py): Llama with norms that have no weights."""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures import llama
from peakmem.architectures.definition import Definition, Row, attention_rows, decoder, gated_rows
from peakmem.architectures.olmo2 import turned
from peakmem.estimate.attention import attend
from peakmem.estimate.inference import cached
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.ops import cast
from peakmem.estimate.positions import rotary
from peakmem.estimate.shapes import split_heads
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import layer_norm, project

MIRRORS = "transformers 5.24.0 models/olmo/modeling_olmo.py"


def define(m: Structure) -> Definition:
    yield from decoder(m, lambda kind: block_rows(m), lambda name: iter(()))


def block_rows(m: Structure) -> Iterator[Row]:
    yield from attention_rows(m.has("attention_bias"), m.has("output_bias"))
    yield from gated_rows()


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: llama.model(m, ids, block, norm=norm, tables=lambda m, dtype: rotary(m, "fp32")),
                     "model.embed_tokens")


def norm(x: Tensor, name: str) -> Tensor:
    """OlmoLayerNorm: in fp32, cast back."""
    return cast(layer_norm(cast(x, "fp32", "input in fp32"), name), x.dtype, "normalised")


def block(m: Structure, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None,
          position_ids: Tensor) -> Tensor:
    residual = x
    x = norm(x, "input_layernorm")
    x, probabilities = attention(m, x, cos, sin, mask)
    x = residual + x
    residual = x
    x = norm(x, "post_attention_layernorm")
    x = llama.mlp(m, x)
    x = residual + x
    del probabilities
    return x


def attention(m: Structure, x: Tensor, cos: Tensor, sin: Tensor,
              mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    with scope("self_attn"):
        q = project(x, "q_proj")
        k = project(x, "k_proj")
        v = project(x, "v_proj")
        q, k, v = split_heads(q, "b a s d"), split_heads(k, "b k s d"), split_heads(v, "b k s d")
        q, k = turned(q, k, cos, sin)
        k, v = cached(m, k, v)
        x, probabilities = attend(m, q, k, v, mask)
        return project(x, "o_proj"), probabilities
