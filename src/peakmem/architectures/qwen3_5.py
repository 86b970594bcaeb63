"""Qwen3.5's text model, as transformers 5.24 runs it (models/qwen3_5/modeling_qwen3_5.py, Qwen3_5ForCausalLM).

Qwen3-Next without experts; the delta net's gate, b and a have projections of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.definition import Definition, Layers, Row, embedding, linear, rms_norm, rotary_buffers
from peakmem.architectures.qwen3_next import attention_rows
from peakmem.estimate.structure import Structure

MIRRORS = "transformers 5.24.0 models/qwen3_5/modeling_qwen3_5.py, Qwen3_5ForCausalLM"


def define(m: Structure) -> Definition:
    yield from embedding("model.embed_tokens", "V", "h")
    yield Layers("model.layers", lambda kind: block_rows(m, kind))
    yield from rms_norm("model.norm")
    yield from rotary_buffers(m)
    if not m.has("tied"):
        yield from linear("lm_head", "V", "h")


def block_rows(m: Structure, kind: str) -> Iterator[Row]:
    yield from attention_rows(m) if kind == "full" else delta_rows()
    for name, outputs, inputs in (("gate_proj", "f", "h"), ("up_proj", "f", "h"), ("down_proj", "h", "f")):
        yield from linear(f"mlp.{name}", outputs, inputs)
    yield from rms_norm("input_layernorm")
    yield from rms_norm("post_attention_layernorm")


def delta_rows() -> Iterator[Row]:
    yield Row("linear_attn.dt_bias", "av")
    yield Row("linear_attn.A_log", "av")
    yield Row("linear_attn.conv1d.weight", "2*ak*ek+av*ev 1 q")
    yield from rms_norm("linear_attn.norm", "ev")
    yield from linear("linear_attn.out_proj", "h", "(av ev)")
    yield from linear("linear_attn.in_proj_qkv", "2*ak*ek+av*ev", "h")
    yield from linear("linear_attn.in_proj_z", "(av ev)", "h")
    yield from linear("linear_attn.in_proj_b", "av", "h")
    yield from linear("linear_attn.in_proj_a", "av", "h")
