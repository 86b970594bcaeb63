"""Phi 1, 1.5 and 2, as transformers 5.24 runs them (models/phi/modeling_phi.py): one norm for both branches."""

from __future__ import annotations

from collections.abc import Iterator

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
from peakmem.estimate.shapes import cat, split_heads
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, project

MIRRORS = "transformers 5.24.0 models/phi/modeling_phi.py"


def define(m: Structure) -> Definition:
    yield from embedding("model.embed_tokens", "V", "h")
    yield Layers("model.layers", lambda kind: block_rows(m))
    yield from rotary_buffers(m)
    yield from layer_norm("model.final_layernorm")
    yield from biased_head(m)


def biased_head(m: Structure) -> Iterator[Row]:
    """The head keeps its bias where its weight is the embedding's."""
    rows = linear("lm_head", "V", "h", True)
    yield from (row for row in rows if not (m.has("tied") and row.name.endswith("weight")))


def block_rows(m: Structure) -> Iterator[Row]:
    yield from linear("self_attn.q_proj", "(a d)", "h", True)
    yield from linear("self_attn.k_proj", "(k d)", "h", True)
    yield from linear("self_attn.v_proj", "(k d)", "h", True)
    yield from linear("self_attn.dense", "h", "(a d)", True)
    if m.has("qk_norm"):
        yield from layer_norm("self_attn.q_layernorm", "d")
        yield from layer_norm("self_attn.k_layernorm", "d")
    yield from linear("mlp.fc1", "f", "h", True)
    yield from linear("mlp.fc2", "h", "f", True)
    yield from layer_norm("input_layernorm")


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: model(m, ids), "model.embed_tokens")


def model(m: Structure, ids: Tensor) -> Tensor:
    with scope("model"):
        inputs_embeds = embed(ids, "embed_tokens")
        position_ids = positions()
        mask = causal_mask(m, inputs_embeds.dtype)
        inputs_embeds = dropout(inputs_embeds, m.drops("embedding"))
        x = inputs_embeds
        cos, sin = rotary(m, x.dtype)
        for _ in m.layers("layers"):
            x = m.layer(block, x, mask, position_ids, cos, sin)
        x = weights.layer_norm(x, "final_layernorm")
        del inputs_embeds
        return x


def block(m: Structure, x: Tensor, mask: Tensor | None, position_ids: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    residual = x
    x = weights.layer_norm(x, "input_layernorm")
    attended, _ = attention(m, x, mask, cos, sin)
    attended = dropout(attended, m.drops("hidden"))
    fed_forward = dropout(mlp(m, x), m.drops("hidden"))
    x = add(add(attended, fed_forward), residual)
    return x


def attention(m: Structure, x: Tensor, mask: Tensor | None, cos: Tensor,
              sin: Tensor) -> tuple[Tensor, Tensor | None]:
    with scope("self_attn"):
        q = split_heads(project(x, "q_proj"), "b a s d")
        k = split_heads(project(x, "k_proj"), "b k s d")
        v = split_heads(project(x, "v_proj"), "b k s d")
        if m.has("qk_norm"):
            q = weights.layer_norm(q, "q_layernorm")
            k = weights.layer_norm(k, "k_layernorm")
        part = rotary_size(m)
        q_part, q_rest = part_and_rest(q, part)
        k_part, k_rest = part_and_rest(k, part)
        q_part, k_part = rotate(q_part, cos, sin, f"{part}/2"), rotate(k_part, cos, sin, f"{part}/2")
        q = cat([q_part, q_rest], q.dims, "rotated and rest")
        k = cat([k_part, k_rest], k.dims, "rotated and rest")
        k, v = cached(m, k, v)
        out, probabilities = attend(m, q, k, v, mask)
        out = project(out, "dense")
        return out, probabilities


def mlp(m: Structure, x: Tensor) -> Tensor:
    with scope("mlp"):
        x = project(x, "fc1")
        x = activation(x, m.activation)
        return project(x, "fc2")
