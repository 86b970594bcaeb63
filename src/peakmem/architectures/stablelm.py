"""StableLM 1 to 3, as transformers 5.24 runs them (models/stablelm/modeling_stablelm.py): partial rotary."""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures import llama
from peakmem.architectures.definition import Definition, Row, attention_rows, decoder, gated_rows, layer_norm
from peakmem.estimate import weights
from peakmem.estimate.attention import attend
from peakmem.estimate.inference import cached
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.norms import norm_per_head
from peakmem.estimate.ops import add, dropout
from peakmem.estimate.positions import part_and_rest, rotary_size, rotate
from peakmem.estimate.shapes import cat, split_heads
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import project

MIRRORS = "transformers 5.24.0 models/stablelm/modeling_stablelm.py"


def define(m: Structure) -> Definition:
    yield from decoder(m, lambda kind: block_rows(m), layer_norm)


def block_rows(m: Structure) -> Iterator[Row]:
    biased = m.has("attention_bias")
    yield from attention_rows(biased, False)
    if m.has("norm_per_head"):
        for name, heads in (("q_layernorm", "a"), ("k_layernorm", "k")):
            for i in range(m.number(heads)):
                yield from layer_norm(f"self_attn.{name}.norms.{i}", "d", bias=False)
    yield from gated_rows()
    yield from layer_norm("input_layernorm")
    if not m.has("parallel_residual"):
        yield from layer_norm("post_attention_layernorm")


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: llama.model(m, ids, block, norm=weights.layer_norm), "model.embed_tokens")


def block(m: Structure, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None,
          position_ids: Tensor) -> Tensor:
    residual = x
    x = weights.layer_norm(x, "input_layernorm")
    attended, _ = attention(m, x, cos, sin, mask)
    if m.has("parallel_residual"):
        fed_forward = llama.mlp(m, x)
        fed_forward = dropout(fed_forward, m.drops("hidden"))
        x = add(add(residual, attended), fed_forward)
    else:
        residual = add(residual, attended)
        fed_forward = llama.mlp(m, weights.layer_norm(residual, "post_attention_layernorm"))
        fed_forward = dropout(fed_forward, m.drops("hidden"))
        x = add(residual, fed_forward)
    return x


def attention(m: Structure, x: Tensor, cos: Tensor, sin: Tensor,
              mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    with scope("self_attn"):
        q, k, v = project(x, "q_proj"), project(x, "k_proj"), project(x, "v_proj")
        q, k, v = split_heads(q, "b a s d"), split_heads(k, "b k s d"), split_heads(v, "b k s d")
        if m.has("norm_per_head"):
            q = norm_per_head(q, "q_layernorm", m.number("a"))
            k = norm_per_head(k, "k_layernorm", m.number("k"))
        part = rotary_size(m)
        q_part, q_rest = part_and_rest(q, part)
        k_part, k_rest = part_and_rest(k, part)
        q_part, k_part = rotate(q_part, cos, sin, f"{part}/2"), rotate(k_part, cos, sin, f"{part}/2")
        q = cat([q_part, q_rest], q.dims, "rotated and rest")
        k = cat([k_part, k_rest], k.dims, "rotated and rest")
        k, v = cached(m, k, v)
        out, probabilities = attend(m, q, k, v, mask)
        out = project(out, "o_proj")
        return out, probabilities
