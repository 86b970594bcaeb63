"""Qwen2-MoE, as transformers 5.24 runs it (models/qwen2_moe/modeling_qwen2_moe.py).

Qwen2's attention; experts, and one that every token meets, scaled by a gate of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures import llama
from peakmem.architectures.definition import Definition, Row, attention_rows, decoder, linear, rms_norm
from peakmem.architectures.llama4 import mlp_rows
from peakmem.architectures.mixtral import block, moe_lm
from peakmem.architectures.qwen3_next import moe
from peakmem.estimate.masks import layer_masks
from peakmem.estimate.positions import positions, rotary
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, rms

MIRRORS = "transformers 5.24.0 models/qwen2_moe/modeling_qwen2_moe.py, experts implementation grouped_mm"


def define(m: Structure) -> Definition:
    yield from decoder(m, lambda kind: block_rows(m, kind))


def block_rows(m: Structure, kind: str) -> Iterator[Row]:
    yield from attention_rows(m.has("attention_bias"), False)
    yield from sparse_rows() if sparse(m, kind) else mlp_rows("mlp", "f")
    yield from rms_norm("input_layernorm")
    yield from rms_norm("post_attention_layernorm")


def sparse_rows() -> Iterator[Row]:
    """peft's table of old names has no entry for this class: no adapter on router and experts, but on the others."""
    yield Row("mlp.gate.weight", "E h")
    yield Row("mlp.experts.gate_up_proj", "E (2 x) h")
    yield Row("mlp.experts.down_proj", "E h x")
    yield from mlp_rows("mlp.shared_expert", "y")
    yield from linear("mlp.shared_expert_gate", "1", "h")


def sparse(m: Structure, kind: str) -> bool:
    """Whether a layer of this kind has experts."""
    return m.has("experts") and "dense" not in kind


def forward(m: Structure, ids: Tensor) -> Tensor:
    return moe_lm(m, lambda: model(m, ids))


def model(m: Structure, ids: Tensor) -> Tensor:
    with scope("model"):
        x = inputs_embeds = embed(ids, "embed_tokens")
        position_ids = positions()
        masks = layer_masks(m, x.dtype, ("full", "sliding"))
        cos, sin = rotary(m, x.dtype)
        for kind in m.layers("layers"):
            feed_forward = moe if sparse(m, kind) else llama.mlp
            mask = masks["sliding" if kind.startswith("sliding") else "full"]
            x = m.layer(block, x, cos, sin, mask, position_ids, feed_forward)
        x = rms(x, "norm")
        del inputs_embeds
        return x
