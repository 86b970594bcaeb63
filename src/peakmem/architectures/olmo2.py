"""OLMo-2, as transformers 5.24 runs it (models/olmo2/modeling_olmo2.py): norms after the blocks, and on q and k."""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures import llama
from peakmem.architectures.definition import Definition, Row, attention_rows, decoder, gated_rows, rms_norm
from peakmem.estimate.attention import attend
from peakmem.estimate.inference import cached
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.masks import causal_mask
from peakmem.estimate.norms import rms_cast_last
from peakmem.estimate.ops import cast
from peakmem.estimate.positions import positions, rotary, rotate
from peakmem.estimate.shapes import split_heads
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, project

MIRRORS = "transformers 5.24.0 models/olmo2/modeling_olmo2.py"


def define(m: Structure) -> Definition:
    yield from decoder(m, lambda kind: block_rows(m))


def block_rows(m: Structure) -> Iterator[Row]:
    biased = m.has("attention_bias")
    yield from attention_rows(biased, m.has("output_bias"))
    yield from rms_norm("self_attn.q_norm", "(a d)")
    yield from rms_norm("self_attn.k_norm", "(k d)")
    yield from gated_rows()
    yield from rms_norm("post_attention_layernorm")
    yield from rms_norm("post_feedforward_layernorm")


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: model(m, ids), "model.embed_tokens")


def model(m: Structure, ids: Tensor) -> Tensor:
    with scope("model"):
        x = inputs_embeds = embed(ids, "embed_tokens")
        position_ids = positions()
        mask = causal_mask(m, x.dtype)
        cos, sin = rotary(m, "fp32")
        for _ in m.layers("layers"):
            x = m.layer(block, x, mask, cos, sin, position_ids)
        x = rms_cast_last(x, "norm")
        del inputs_embeds
        return x


def block(m: Structure, x: Tensor, mask: Tensor | None, cos: Tensor, sin: Tensor, position_ids: Tensor) -> Tensor:
    residual = x
    x, probabilities = attention(m, x, mask, cos, sin)
    x = rms_cast_last(x, "post_attention_layernorm")
    x = residual + x
    residual = x
    x = llama.mlp(m, x)
    x = rms_cast_last(x, "post_feedforward_layernorm")
    x = residual + x
    del probabilities
    return x


def attention(m: Structure, x: Tensor, mask: Tensor | None, cos: Tensor,
              sin: Tensor) -> tuple[Tensor, Tensor | None]:
    with scope("self_attn"):
        q = rms_cast_last(project(x, "q_proj"), "q_norm")
        k = rms_cast_last(project(x, "k_proj"), "k_norm")
        v = project(x, "v_proj")
        q, k, v = split_heads(q, "b a s d"), split_heads(k, "b k s d"), split_heads(v, "b k s d")
        q, k = turned(q, k, cos, sin)
        k, v = cached(m, k, v)
        x, probabilities = attend(m, q, k, v, mask)
        return project(x, "o_proj"), probabilities


def turned(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """apply_rotary_pos_emb: the tables are fp32, so q and k are until both are done."""
    q_embed, k_embed = rotate(q, cos, sin), rotate(k, cos, sin)
    return cast(q_embed, q.dtype), cast(k_embed, k.dtype)
