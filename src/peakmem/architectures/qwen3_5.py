"""Qwen3.5's text model, as transformers 5.24 runs it (models/qwen3_5/modeling_qwen3_5.py, Qwen3_5ForCausalLM).

Qwen3-Next without experts; the delta net's gate, b and a have projections of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.definition import Definition, Row, decoder, linear, rms_norm
from peakmem.architectures.delta_net import gated_delta_net
from peakmem.architectures.qwen3_next import gated_attention_rows, model
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.ops import cast
from peakmem.estimate.positions import made
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor

MIRRORS = ("transformers 5.24.0 models/qwen3_5/modeling_qwen3_5.py, Qwen3_5ForCausalLM, without fla and "
           "causal-conv1d")


def define(m: Structure) -> Definition:
    yield from decoder(m, lambda kind: block_rows(m, kind))


def block_rows(m: Structure, kind: str) -> Iterator[Row]:
    yield from gated_attention_rows(m) if kind == "full" else delta_rows()
    for name, outputs, inputs in (("gate_proj", "f", "h"), ("up_proj", "f", "h"), ("down_proj", "h", "f")):
        yield from linear(f"mlp.{name}", outputs, inputs)
    yield from rms_norm("input_layernorm")
    yield from rms_norm("post_attention_layernorm")


def delta_rows() -> Iterator[Row]:
    yield Row("linear_attn.dt_bias", "av")
    yield Row("linear_attn.A_log", "av")
    yield Row("linear_attn.conv1d.weight", "cc 1 q")
    yield from rms_norm("linear_attn.norm", "ev")
    yield from linear("linear_attn.out_proj", "h", "(ak rv ev)")
    yield from linear("linear_attn.in_proj_qkv", "cc", "h")
    yield from linear("linear_attn.in_proj_z", "(ak rv ev)", "h")
    yield from linear("linear_attn.in_proj_b", "(ak rv)", "h")
    yield from linear("linear_attn.in_proj_a", "(ak rv)", "h")


def forward(m: Structure, ids: Tensor) -> Tensor:
    def mixer(x: Tensor) -> Tensor:
        return gated_delta_net(m, x, together=False)

    return causal_lm(m, lambda: model(m, ids, mixer, grid_table), "model.embed_tokens")


def grid_table(m: Structure, dtype: str) -> tuple[Tensor, Tensor]:
    """Qwen3_5TextRotaryEmbedding.forward: time, height and width of every token, then one table of the three."""
    numbers = made("3 b s 1", "fp32", "positions in fp32")
    angles = made("3 b s u/2", "fp32", "angles")
    del numbers
    cos = made("3 b s u/2", "fp32", "cosine")
    cos = made("3 b s u/2", "fp32", "cosine")
    sin = made("3 b s u/2", "fp32", "sine")
    sin = made("3 b s u/2", "fp32", "sine")
    sin = made("b s u", "fp32", "sine table")
    cos = made("b s u", "fp32", "cosine table")
    tables = cast(cos, dtype), cast(sin, dtype)
    del angles
    return tables
