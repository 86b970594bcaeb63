"""StarCoder2, as transformers 5.24 runs it (models/starcoder2/modeling_starcoder2.py)."""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.definition import Definition, Row, attention_rows, decoder, layer_norm, linear
from peakmem.estimate import weights
from peakmem.estimate.attention import attend
from peakmem.estimate.inference import cached
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.masks import layer_masks
from peakmem.estimate.ops import activation, dropout
from peakmem.estimate.positions import positions, rotary, rotate
from peakmem.estimate.shapes import split_heads
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, project

MIRRORS = "transformers 5.24.0 models/starcoder2/modeling_starcoder2.py"


def define(m: Structure) -> Definition:
    yield from decoder(m, lambda kind: block_rows(m), layer_norm)


def block_rows(m: Structure) -> Iterator[Row]:
    biased = m.has("mlp_bias")
    yield from attention_rows(biased)
    yield from linear("mlp.c_fc", "f", "h", biased)
    yield from linear("mlp.c_proj", "h", "f", biased)
    yield from layer_norm("input_layernorm")
    yield from layer_norm("post_attention_layernorm")


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: model(m, ids), "model.embed_tokens")


def model(m: Structure, ids: Tensor) -> Tensor:
    with scope("model"):
        inputs_embeds = embed(ids, "embed_tokens")
        position_ids = positions()
        masks = layer_masks(m, inputs_embeds.dtype, m.kinds())
        x = inputs_embeds
        x = dropout(x, m.drops("embedding"))
        cos, sin = rotary(m, x.dtype)
        for kind in m.layers("layers"):
            x = m.layer(block, x, masks[kind], position_ids, cos, sin)
        x = weights.layer_norm(x, "norm")
        del inputs_embeds
        return x


def block(m: Structure, x: Tensor, mask: Tensor | None, position_ids: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    residual = x
    x = weights.layer_norm(x, "input_layernorm")
    x, probabilities = attention(m, x, mask, cos, sin)
    x = residual + x
    residual = x
    x = weights.layer_norm(x, "post_attention_layernorm")
    x = mlp(m, x)
    x = residual + x
    del probabilities
    return x


def attention(m: Structure, x: Tensor, mask: Tensor | None, cos: Tensor,
              sin: Tensor) -> tuple[Tensor, Tensor | None]:
    with scope("self_attn"):
        q = split_heads(project(x, "q_proj"), "b a s d")
        k = split_heads(project(x, "k_proj"), "b k s d")
        v = split_heads(project(x, "v_proj"), "b k s d")
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = cached(m, k, v)
        out, probabilities = attend(m, q, k, v, mask)
        out = project(out, "o_proj")
        out = dropout(out, m.drops("hidden"))
        return out, probabilities


def mlp(m: Structure, x: Tensor) -> Tensor:
    with scope("mlp"):
        x = project(x, "c_fc")
        x = activation(x, m.activation)
        x = project(x, "c_proj")
        return dropout(x, m.drops("hidden"))
