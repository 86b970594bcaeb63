"""Hunyuan's mixtures, as transformers 5.24 runs them (models/hunyuan_v1_moe/modeling_hunyuan_v1_moe.py).

The dense models' attention; experts, and one feed-forward that every token meets, before them.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures import llama
from peakmem.architectures.definition import Definition, Row, attention_rows, decoder, linear, rms_norm
from peakmem.architectures.mixtral import expert_rows
from peakmem.architectures.qwen3_moe import dense_rows
from peakmem.estimate.experts import divide_in_place, experts, topk
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.ops import add, cast, softmax, total_over
from peakmem.estimate.packed import Packed
from peakmem.estimate.shapes import reshape, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import has, project, weight

MIRRORS = "transformers 5.24.0 models/hunyuan_v1_moe/modeling_hunyuan_v1_moe.py, experts implementation grouped_mm"


def define(m: Structure) -> Definition:
    yield from decoder(m, lambda kind: block_rows(m))


def block_rows(m: Structure) -> Iterator[Row]:
    yield from attention_rows(m.has("attention_bias"))
    yield from rms_norm("self_attn.query_layernorm", "d")
    yield from rms_norm("self_attn.key_layernorm", "d")
    for row in linear("mlp.gate.wg", "E", "h"):
        yield row._replace(dtype="fp32")
    yield from expert_rows(m, "mlp.experts")
    yield from dense_rows(False, "mlp.shared_mlp")
    yield from rms_norm("input_layernorm")
    yield from rms_norm("post_attention_layernorm")


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: llama.model(m, ids, block), "model.embed_tokens")


def block(m: Structure, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None,
          position_ids: Tensor) -> Tensor:
    return llama.pre_norm(x, lambda x: llama.attention(m, x, cos, sin, mask), lambda x: moe(m, x))


def moe(m: Structure, x: Tensor) -> Tensor:
    """HunYuanMoEV1Moe. The router's logits live until it returns."""
    with scope("mlp"):
        shape = x.dims
        shared = llama.mlp(m, x, "shared_mlp")
        x = view(x, "(b s) h")
        logits, weights, numbers = route(x)
        output = reshape(experts(m, x, numbers, weights), shape)
        total = add(output, shared)
        del logits, output
        return total


def route(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """HunYuanMoEV1Gate: in fp32, whatever the model is in; but not where bytes stand for the weight."""
    with scope("gate"):
        x = view(x, x.dims)
        with scope("wg"):
            packed = isinstance(weight("weight" if has("weight") else "base_layer.weight"), Packed)
        if not packed:
            x = cast(x, "fp32", "rows in fp32")
        logits = project(x, "wg")
        values = softmax(logits, "fp32")
        values, numbers = topk(values, "K")
        values = divide_in_place(values, total_over(values, 1, keep=True))
        return logits, cast(values, logits.dtype, "expert weights"), numbers
