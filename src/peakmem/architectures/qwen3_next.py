"""Qwen3-Next, as transformers 5.24 runs it (models/qwen3_next/modeling_qwen3_next.py).

Three layers with a gated delta net, whose state has a fixed size, then one with gated attention; experts, and one
that every token meets, behind a gate of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.definition import Definition, Layers, Row, embedding, linear, rms_norm, rotary_buffers
from peakmem.architectures.mixtral import expert_rows, router_rows
from peakmem.architectures.qwen3_moe import dense_rows
from peakmem.estimate.structure import Structure

MIRRORS = "transformers 5.24.0 models/qwen3_next/modeling_qwen3_next.py, experts implementation grouped_mm"


def define(m: Structure) -> Definition:
    yield from embedding("model.embed_tokens", "V", "h")
    yield Layers("model.layers", lambda kind: block_rows(m, kind))
    yield from rms_norm("model.norm")
    yield from rotary_buffers(m)
    if not m.has("tied"):
        yield from linear("lm_head", "V", "h")


def block_rows(m: Structure, kind: str) -> Iterator[Row]:
    yield from attention_rows(m) if kind.startswith("full") else delta_rows(m)
    yield from dense_rows() if "dense" in kind else sparse_rows(m)
    yield from rms_norm("input_layernorm")
    yield from rms_norm("post_attention_layernorm")


def attention_rows(m: Structure) -> Iterator[Row]:
    """The queries' projection holds a gate for each head as well."""
    biased = m.has("attention_bias")
    yield from linear("self_attn.q_proj", "(a 2 d)", "h", biased)
    yield from linear("self_attn.k_proj", "(k d)", "h", biased)
    yield from linear("self_attn.v_proj", "(k d)", "h", biased)
    yield from linear("self_attn.o_proj", "h", "(a d)", biased)
    yield from rms_norm("self_attn.q_norm", "d")
    yield from rms_norm("self_attn.k_norm", "d")


def delta_rows(m: Structure) -> Iterator[Row]:
    """Qwen3NextGatedDeltaNet: queries, keys, values and gate in one projection, b and a in another."""
    yield Row("linear_attn.dt_bias", "av")
    yield Row("linear_attn.A_log", "av")
    yield Row("linear_attn.conv1d.weight", "2*ak*ek+av*ev 1 q")
    yield from linear("linear_attn.in_proj_qkvz", "2*ak*ek+2*av*ev", "h")
    yield from linear("linear_attn.in_proj_ba", "2*av", "h")
    yield from rms_norm("linear_attn.norm", "ev")
    yield from linear("linear_attn.out_proj", "h", "(av ev)")


def sparse_rows(m: Structure) -> Iterator[Row]:
    """Experts, and the one that every token meets."""
    yield from router_rows(m, "mlp.gate")
    yield from expert_rows(m, "mlp.experts")
    yield from dense_rows(False, "mlp.shared_expert", "y")
    yield from linear("mlp.shared_expert_gate", "1", "h")
