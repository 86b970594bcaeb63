"""Qwen3-MoE, as transformers 5.24 runs it (models/qwen3_moe/modeling_qwen3_moe.py).

Qwen3's attention with norms on q and k; in each layer experts or a dense feed-forward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from peakmem.architectures.definition import Definition, Row, attention_rows, decoder, linear, rms_norm
from peakmem.architectures.llama import mlp
from peakmem.architectures.mixtral import FeedForward, expert_rows, model, moe, moe_lm, router_rows
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor

MIRRORS = "transformers 5.24.0 models/qwen3_moe/modeling_qwen3_moe.py, experts implementation grouped_mm"


def define(m: Structure) -> Definition:
    yield from decoder(m, lambda kind: block_rows(m, kind))


def block_rows(m: Structure, kind: str) -> Iterator[Row]:
    biased = m.has("attention_bias")
    yield from attention_rows(biased, m.has("output_bias"))
    yield from rms_norm("self_attn.q_norm", "d")
    yield from rms_norm("self_attn.k_norm", "d")
    if has_experts(m, kind):
        yield from expert_rows(m, "mlp.experts")
        yield from router_rows(m, "mlp.gate")
    else:
        yield from dense_rows()
    yield from rms_norm("input_layernorm")
    yield from rms_norm("post_attention_layernorm")


def dense_rows(biased: bool = False, name: str = "mlp", size: str = "f") -> Iterator[Row]:
    """A dense feed-forward. peft takes the names of its layers for those of experts, so none gets an adapter."""
    for part, outputs, inputs in (("gate_proj", size, "h"), ("up_proj", size, "h"), ("down_proj", "h", size)):
        for row in linear(f"{name}.{part}", outputs, inputs, biased):
            yield row._replace(adapted=False)


def has_experts(m: Structure, kind: str) -> bool:
    """Whether a layer of this kind has experts: all have, unless some are called dense."""
    return m.has("experts") and not kind.startswith("dense")


def forward(m: Structure, ids: Tensor) -> Tensor:
    return moe_lm(m, lambda: model(m, ids, feed_forward(m)))


def feed_forward(m: Structure) -> Callable[[str], FeedForward]:
    """What each kind of layer has there."""
    return lambda kind: sparse if has_experts(m, kind) else mlp


def sparse(m: Structure, x: Tensor) -> Tensor:
    """Qwen3MoeSparseMoeBlock: its router's weights have the dtype of the logits."""
    return moe(m, x, keeps_dtype=True)
