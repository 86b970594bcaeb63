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
    rotary_buffers,
)
from peakmem.estimate import weights
from peakmem.estimate.attention import attend
from peakmem.estimate.inference import cached
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.masks import causal_mask
from peakmem.estimate.ops import activation, add, dropout
from peakmem.estimate.positions import part_and_rest, positions, rotary, rotary_size, rotate
from peakmem.estimate.shapes import cat, split, swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, project

MIRRORS = "transformers 5.24.0 models/gpt_neox/modeling_gpt_neox.py"


def define(m: Structure) -> Definition:
    yield from embedding("gpt_neox.embed_in", "V", "h")
    yield Layers("gpt_neox.layers", lambda kind: block_rows(m))
    yield from layer_norm("gpt_neox.final_layer_norm")
    yield from rotary_buffers(m, "gpt_neox.rotary_emb")
    if not m.has("tied"):
        yield from linear("lm_head", "V", "h")


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
        q, k = rotate_parts(m, q, k, cos, sin)
        k, v = cached(m, k, v)
        out, probabilities = attend(m, q, k, v, mask)
        out = project(out, "dense")
        return out, probabilities


def rotate_parts(m: Structure, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """apply_rotary_pos_emb: the first elements of a head are turned, then joined to the rest, if any."""
    part = rotary_size(m)
    q_part, q_rest = part_and_rest(q, part)
    k_part, k_rest = part_and_rest(k, part)
    q_out = rotate(q_part, cos, sin, f"{part}/2")
    k_out = rotate(k_part, cos, sin, f"{part}/2")
    q_out = cat([q_out, q_rest], q.dims, "rotated and rest")
    k_out = cat([k_out, k_rest], k.dims, "rotated and rest")
    return q_out, k_out


def mlp(m: Structure, x: Tensor) -> Tensor:
    with scope("mlp"):
        wide = project(x, "dense_h_to_4h")
        wide = activation(wide, m.activation)
        return project(wide, "dense_4h_to_h")
