"""GLM, as transformers 5.24 runs it (models/glm/modeling_glm.py): half of each head turned, pairs of neighbours."""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures import llama, phi3
from peakmem.architectures.definition import Definition, Row, attention_rows, decoder, linear, rms_norm
from peakmem.estimate.attention import attend
from peakmem.estimate.inference import cached
from peakmem.estimate.interleaved import repeated_twice, rotate_pairs
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.positions import part_and_rest, rotary_size
from peakmem.estimate.shapes import cat, swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import project, rms

MIRRORS = "transformers 5.24.0 models/glm/modeling_glm.py"


def define(m: Structure) -> Definition:
    yield from decoder(m, lambda kind: block_rows(m))


def block_rows(m: Structure) -> Iterator[Row]:
    yield from attention_rows(m.has("attention_bias"), False)
    yield from linear("mlp.gate_up_proj", "(2 f)", "h")
    yield from linear("mlp.down_proj", "h", "f")
    yield from rms_norm("input_layernorm")
    yield from rms_norm("post_attention_layernorm")
    if m.has("sandwich_norms"):
        yield from rms_norm("post_self_attn_layernorm")
        yield from rms_norm("post_mlp_layernorm")


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: llama.model(m, ids, block), "model.embed_tokens")


def block(m: Structure, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None,
          position_ids: Tensor) -> Tensor:
    residual = x
    x = rms(x, "input_layernorm")
    x, probabilities = attention(m, x, cos, sin, mask)
    if m.has("sandwich_norms"):
        x = rms(x, "post_self_attn_layernorm")
    x = residual + x
    residual = x
    x = rms(x, "post_attention_layernorm")
    x = phi3.mlp(m, x)
    if m.has("sandwich_norms"):
        x = rms(x, "post_mlp_layernorm")
    x = residual + x
    del probabilities
    return x


def attention(m: Structure, x: Tensor, cos: Tensor, sin: Tensor,
              mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    with scope("self_attn"):
        q = llama.heads(m, x, "q", "a")
        k = llama.heads(m, x, "k", "k")
        v = swap(view(project(x, "v_proj"), "b s k d"), "b k s d")
        q, k = turned(m, q, k, cos, sin)
        k, v = cached(m, k, v)
        x, probabilities = attend(m, q, k, v, mask)
        return project(x, "o_proj"), probabilities


def turned(m: Structure, q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """apply_rotary_pos_emb: each number of half a table twice in a row; both are turned, then joined with the rest."""
    part = rotary_size(m)
    cos = repeated_twice(cos, part, "cosines")
    sin = repeated_twice(sin, part, "sines")
    q_rot, q_pass = part_and_rest(q, part)
    k_rot, k_pass = part_and_rest(k, part)
    q_embed = rotate_pairs(q_rot, cos, sin, f"{part}/2")
    k_embed = rotate_pairs(k_rot, cos, sin, f"{part}/2")
    q_embed = cat([q_embed, q_pass], q.dims, "rotated and rest")
    k_embed = cat([k_embed, k_pass], k.dims, "rotated and rest")
    return q_embed, k_embed
