"""dots.llm1, as transformers 5.24 runs it (models/dots1/modeling_dots1.py): Qwen3 with DeepSeek-V3's experts."""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures import deepseek_v3, llama
from peakmem.architectures.definition import Definition, Row, attention_rows, decoder, rms_norm
from peakmem.architectures.mixtral import moe_lm
from peakmem.architectures.qwen3_moe import dense_rows
from peakmem.estimate.masks import layer_masks
from peakmem.estimate.positions import positions, rotary
from peakmem.estimate.routers import group_router
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, rms

MIRRORS = "transformers 5.24.0 models/dots1/modeling_dots1.py, experts implementation grouped_mm"


def define(m: Structure) -> Definition:
    yield from decoder(m, lambda kind: block_rows(m, kind))


def block_rows(m: Structure, kind: str) -> Iterator[Row]:
    yield from attention_rows(m.has("attention_bias"))
    yield from rms_norm("self_attn.q_norm", "d")
    yield from rms_norm("self_attn.k_norm", "d")
    yield from dense_rows() if "dense" in kind else deepseek_v3.sparse_rows(m)
    yield from rms_norm("input_layernorm")
    yield from rms_norm("post_attention_layernorm")


def forward(m: Structure, ids: Tensor) -> Tensor:
    return moe_lm(m, lambda: model(m, ids))


def model(m: Structure, ids: Tensor) -> Tensor:
    with scope("model"):
        x = inputs_embeds = embed(ids, "embed_tokens")
        position_ids = positions()
        slide = {kind: kind.startswith("sliding") for kind in m.kinds()}
        masks = layer_masks(m, x.dtype, sorted({"sliding" if slides else "full" for slides in slide.values()}))
        cos, sin = rotary(m, x.dtype)
        for kind in m.layers("layers"):
            mask = masks["sliding" if slide[kind] else "full"]
            x = m.layer(block, x, mask, cos, sin, position_ids, "dense" in kind)
        x = rms(x, "norm")
        del inputs_embeds
        return x


def block(m: Structure, x: Tensor, mask: Tensor | None, cos: Tensor, sin: Tensor, position_ids: Tensor,
          dense: bool) -> Tensor:
    return llama.pre_norm(x, lambda x: llama.attention(m, x, cos, sin, mask),
                          lambda x: llama.mlp(m, x) if dense else deepseek_v3.moe(m, x, group_router))
