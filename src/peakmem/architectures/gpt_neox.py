"""GPT-NeoX and Pythia, as transformers 5.24 runs them (models/gpt_neox/modeling_gpt_neox.py)."""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures import gpt_neox_older
from peakmem.architectures.definition import (
    Definition,
    Layers,
    Row,
    embedding,
    layer_norm,
    linear,
    lm_head,
    rotary_buffers,
)
from peakmem.estimate import weights
from peakmem.estimate.attention import attend
from peakmem.estimate.inference import cached
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.masks import causal_mask
from peakmem.estimate.ops import activation, add, dropout
from peakmem.estimate.positions import positions, rotary, rotate_both
from peakmem.estimate.shapes import split, swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, project

MIRRORS = "transformers 5.24.0 models/gpt_neox/modeling_gpt_neox.py"


def define(m: Structure) -> Definition:
    yield from embedding("gpt_neox.embed_in", "V", "h")
    yield Layers("gpt_neox.layers", lambda kind: block_rows(m))
    yield from layer_norm("gpt_neox.final_layer_norm")
    yield from rotary_buffers(m, "gpt_neox.rotary_emb")
    yield from lm_head(m)


def block_rows(m: Structure) -> Iterator[Row]:
    yield from layer_norm("input_layernorm")
    yield from layer_norm("post_attention_layernorm")
    yield from linear("attention.query_key_value", "(a 3 d)", "h", m.has("attention_bias"))
    yield from linear("attention.dense", "h", "(a d)", m.has("output_bias"))
    if m.has("float_rotary"):
        yield from gpt_neox_older.layer_buffers()
    yield from linear("mlp.dense_h_to_4h", "f", "h", True)
    yield from linear("mlp.dense_4h_to_h", "h", "f", True)


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: model(m, ids), "gpt_neox.embed_in")


def model(m: Structure, ids: Tensor) -> Tensor:
    with scope("gpt_neox"):
        inputs_embeds = embed(ids, "embed_in")
        position_ids = positions()
        mask = causal_mask(m, inputs_embeds.dtype)
        x = dropout(inputs_embeds, m.drops("embedding"))
        tables = rotary(m, x.dtype)
        for _ in m.layers("layers"):
            x = m.layer(block, x, mask, position_ids, tables)
        return weights.layer_norm(x, "final_layer_norm")


def block(m: Structure, x: Tensor, mask: Tensor | None, position_ids: Tensor,
          tables: tuple[Tensor, Tensor]) -> Tensor:
    if m.has("float_rotary"):
        attended = gpt_neox_older.attention(m, weights.layer_norm(x, "input_layernorm"))
    else:
        attended, _ = attention(m, weights.layer_norm(x, "input_layernorm"), mask, tables)
    attended = dropout(attended, m.drops("hidden"))
    if m.has("parallel_residual"):
        fed_forward = mlp(m, weights.layer_norm(x, "post_attention_layernorm"))
        fed_forward = dropout(fed_forward, m.drops("hidden"))
        x = add(add(fed_forward, attended), x)
    else:
        attended = add(attended, x)
        fed_forward = mlp(m, weights.layer_norm(attended, "post_attention_layernorm"))
        fed_forward = dropout(fed_forward, m.drops("hidden"))
        x = add(fed_forward, attended)
    return x


def attention(m: Structure, x: Tensor, mask: Tensor | None,
              tables: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor | None]:
    with scope("attention"):
        qkv = swap(view(project(x, "query_key_value"), "b s a (3 d)"), "b a s (3 d)")
        q, k, v = split(qkv, 3, ["d", "d", "d"])
        cos, sin = tables
        q, k = rotate_both(m, q, k, cos, sin)
        k, v = cached(m, k, v)
        out, probabilities = attend(m, q, k, v, mask)
        out = project(out, "dense")
        return out, probabilities


def mlp(m: Structure, x: Tensor) -> Tensor:
    with scope("mlp"):
        wide = project(x, "dense_h_to_4h")
        wide = activation(wide, m.activation)
        return project(wide, "dense_4h_to_h")
