"""OLMoE, as transformers 5.24 runs it (models/olmoe/modeling_olmoe.py): norms on q and k span all heads; experts."""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures import llama
from peakmem.architectures.definition import Definition, Row, attention_rows, decoder, rms_norm
from peakmem.architectures.mixtral import expert_rows, moe_lm, router_rows
from peakmem.architectures.qwen3_moe import sparse
from peakmem.estimate.attention import attend
from peakmem.estimate.inference import cached
from peakmem.estimate.positions import rotate
from peakmem.estimate.shapes import split_heads
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import project, rms

MIRRORS = "transformers 5.24.0 models/olmoe/modeling_olmoe.py, experts implementation grouped_mm"


def define(m: Structure) -> Definition:
    yield from decoder(m, lambda kind: block_rows(m))


def block_rows(m: Structure) -> Iterator[Row]:
    yield from attention_rows(m.has("attention_bias"), m.has("output_bias"))
    yield from rms_norm("self_attn.q_norm", "(a d)")
    yield from rms_norm("self_attn.k_norm", "(k d)")
    yield from router_rows(m, "mlp.gate")
    yield from expert_rows(m, "mlp.experts")
    yield from rms_norm("input_layernorm")
    yield from rms_norm("post_attention_layernorm")


def forward(m: Structure, ids: Tensor) -> Tensor:
    return moe_lm(m, lambda: llama.model(m, ids, block))


def block(m: Structure, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None, position_ids: Tensor) -> Tensor:
    return llama.pre_norm(x, lambda x: attention(m, x, cos, sin, mask), lambda x: sparse(m, x))


def attention(m: Structure, x: Tensor, cos: Tensor, sin: Tensor,
              mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    with scope("self_attn"):
        q = rms(project(x, "q_proj"), "q_norm")
        k = rms(project(x, "k_proj"), "k_norm")
        v = project(x, "v_proj")
        q, k, v = split_heads(q, "b a s d"), split_heads(k, "b k s d"), split_heads(v, "b k s d")
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = cached(m, k, v)
        x, probabilities = attend(m, q, k, v, mask)
        return project(x, "o_proj"), probabilities
