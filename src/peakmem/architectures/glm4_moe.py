"""GLM-4.5, 4.6 and 4.7, as transformers 5.24 runs them (models/glm4_moe/modeling_glm4_moe.py).

Grouped attention of which half of each head is turned; dense layers first, then DeepSeek-V3's experts.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures import deepseek_v3, llama
from peakmem.architectures.definition import Definition, Row, attention_rows, decoder, rms_norm
from peakmem.architectures.mixtral import moe_lm
from peakmem.architectures.qwen3_moe import dense_rows
from peakmem.estimate.attention import attend
from peakmem.estimate.inference import cached
from peakmem.estimate.masks import causal_mask
from peakmem.estimate.positions import positions, rotary, rotate_both
from peakmem.estimate.routers import group_router
from peakmem.estimate.shapes import swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, project, rms

MIRRORS = "transformers 5.24.0 models/glm4_moe/modeling_glm4_moe.py, experts implementation grouped_mm"


def define(m: Structure) -> Definition:
    yield from decoder(m, lambda kind: block_rows(m, kind))


def block_rows(m: Structure, kind: str) -> Iterator[Row]:
    yield from attention_rows(m.has("attention_bias"), False)
    if m.has("qk_norm"):
        yield from rms_norm("self_attn.q_norm", "d")
        yield from rms_norm("self_attn.k_norm", "d")
    yield from dense_rows() if kind == "dense" else deepseek_v3.sparse_rows(m)
    yield from rms_norm("input_layernorm")
    yield from rms_norm("post_attention_layernorm")


def forward(m: Structure, ids: Tensor) -> Tensor:
    return moe_lm(m, lambda: model(m, ids))


def model(m: Structure, ids: Tensor) -> Tensor:
    with scope("model"):
        x = inputs_embeds = embed(ids, "embed_tokens")
        position_ids = positions()
        mask = causal_mask(m, x.dtype)
        cos, sin = rotary(m, x.dtype)
        for kind in m.layers("layers"):
            x = m.layer(block, x, mask, cos, sin, position_ids, kind == "dense")
        x = rms(x, "norm")
        del inputs_embeds
        return x


def block(m: Structure, x: Tensor, mask: Tensor | None, cos: Tensor, sin: Tensor, position_ids: Tensor,
          dense: bool) -> Tensor:
    return llama.pre_norm(x, lambda x: attention(m, x, cos, sin, mask),
                          lambda x: llama.mlp(m, x) if dense else deepseek_v3.moe(m, x, group_router))


def attention(m: Structure, x: Tensor, cos: Tensor, sin: Tensor,
              mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    with scope("self_attn"):
        q = view(project(x, "q_proj"), "b s a d")
        k = view(project(x, "k_proj"), "b s k d")
        v = view(project(x, "v_proj"), "b s k d")
        if m.has("qk_norm"):
            q = rms(q, "q_norm")
            k = rms(k, "k_norm")
        q, k, v = swap(q, "b a s d"), swap(k, "b k s d"), swap(v, "b k s d")
        q, k = rotate_both(m, q, k, cos, sin)
        k, v = cached(m, k, v)
        x, probabilities = attend(m, q, k, v, mask)
        return project(x, "o_proj"), probabilities
