"""GLM-5, as transformers 5.24 runs it (models/glm_moe_dsa/modeling_glm_moe_dsa.py).

DeepSeek-V3 with an indexer in each layer, which chooses the tokens that are attended to; `shared` layers take the
choice of the layer before.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures import deepseek_v3
from peakmem.architectures.deepseek_v3 import expanded, moe, sparse_rows, table
from peakmem.architectures.definition import (
    Definition,
    Layers,
    Row,
    buffer,
    embedding,
    layer_norm,
    linear,
    lm_head,
    rms_norm,
    unpacked,
)
from peakmem.architectures.llama import mlp
from peakmem.architectures.mixtral import moe_lm
from peakmem.architectures.qwen3_moe import dense_rows
from peakmem.estimate.attention import attend
from peakmem.estimate.indexer import hidden_but, indexer
from peakmem.estimate.inference import cached
from peakmem.estimate.masks import full_mask
from peakmem.estimate.positions import positions
from peakmem.estimate.rotary_pairs import rotate_pairs
from peakmem.estimate.routers import group_router
from peakmem.estimate.shapes import cat, split, split_heads, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, project, rms

MIRRORS = "transformers 5.24.0 models/glm_moe_dsa/modeling_glm_moe_dsa.py, experts implementation grouped_mm"


def define(m: Structure) -> Definition:
    yield from embedding("model.embed_tokens", "V", "h")
    yield Layers("model.layers", lambda kind: block_rows(m, kind))
    yield from rms_norm("model.norm")
    for name in ("inv_freq", "original_inv_freq"):
        yield from buffer(f"model.rotary_emb.{name}", "dr/2", "fp32")
    yield from lm_head(m)


def block_rows(m: Structure, kind: str) -> Iterator[Row]:
    yield from deepseek_v3.attention_rows(m)
    if "shared" not in kind:
        yield from (row._replace(reached=False) for row in indexer_rows())
    yield from dense_rows() if kind.startswith("dense") else sparse_rows(m)
    yield from rms_norm("input_layernorm")
    yield from rms_norm("post_attention_layernorm")


def indexer_rows() -> Iterator[Row]:
    yield from linear("self_attn.indexer.wq_b", "(ai di)", "lq")
    yield from linear("self_attn.indexer.wk", "di", "h")
    yield from layer_norm("self_attn.indexer.k_norm", "di")
    yield from unpacked(linear("self_attn.indexer.weights_proj", "ai", "h"))


def forward(m: Structure, ids: Tensor) -> Tensor:
    return moe_lm(m, lambda: model(m, ids))


def model(m: Structure, ids: Tensor) -> Tensor:
    with scope("model"):
        x = inputs_embeds = embed(ids, "embed_tokens")
        position_ids = positions()
        mask = full_mask(m, x.dtype)
        turned = table(x.dtype)
        chosen = None
        for kind in m.layers("layers"):
            x, chosen = m.both(block, x, mask, turned, position_ids, chosen, kind)
        x = rms(x, "norm")
        del inputs_embeds
        return x


def block(m: Structure, x: Tensor, mask: Tensor, turned: tuple[Tensor, ...], position_ids: Tensor,
          chosen: Tensor | None, kind: str) -> tuple[Tensor, Tensor]:
    residual = x
    x = rms(x, "input_layernorm")
    x, probabilities, chosen = attention(m, x, mask, turned, None if "shared" not in kind else chosen)
    x = residual + x
    residual = x
    x = rms(x, "post_attention_layernorm")
    x = mlp(m, x) if kind.startswith("dense") else moe(m, x, group_router)
    x = residual + x
    del probabilities
    return x, chosen


def attention(m: Structure, x: Tensor, mask: Tensor, turned: tuple[Tensor, ...],
              chosen: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor]:
    with scope("self_attn"):
        q_residual = rms(project(x, "q_a_proj"), "q_a_layernorm")
        q = split_heads(project(q_residual, "q_b_proj"), "b a s d")
        q_pass, q_rot = split(q, 3, ["dn", "dr"])
        compressed = project(x, "kv_a_proj_with_mqa")
        latent, k_rot = split(compressed, 2, ["lk", "dr"])
        latent = view(rms(latent, "kv_a_layernorm"), "b 1 s lk")
        k_rot = view(k_rot, "b 1 s dr")
        cos, sin = turned
        q_rot, k_rot = rotate_pairs(q_rot, k_rot, cos, sin, "dr")
        latent, k_rot = cached(m, latent, k_rot)
        query = cat([q_pass, q_rot], "b a s d", "queries")
        keys, values = expanded(latent, k_rot)
        if chosen is None:
            chosen = indexer(m, x, q_residual, cos, sin, mask)
        mask, hidden = hidden_but(chosen, mask, x.dtype)
        x, probabilities = attend(m, query, keys, values, mask)
        x = project(x, "o_proj")
        del hidden
        return x, probabilities, chosen
