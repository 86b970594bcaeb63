"""ERNIE 4.5's mixtures, as transformers 5.24 runs them (models/ernie4_5_moe/modeling_ernie4_5_moe.py).

ERNIE 4.5's attention; dense layers, then experts, whose router is outside autocast, and shared ones before them.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures import ernie4_5, llama
from peakmem.architectures.definition import Definition, Row, attention_rows, decoder, rms_norm
from peakmem.architectures.mixtral import expert_rows, moe_lm, router_rows
from peakmem.architectures.qwen3_moe import dense_rows
from peakmem.estimate.experts import experts, topk
from peakmem.estimate.masks import causal_mask
from peakmem.estimate.ops import add, autocast_off, cast, softmax, total_over
from peakmem.estimate.param_adapters import router_delta, router_weight
from peakmem.estimate.positions import positions
from peakmem.estimate.routers import gather, quotient
from peakmem.estimate.shapes import reshape, view
from peakmem.estimate.slices import clamp
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, current, scope
from peakmem.estimate.weights import embed, product, rms, weight

MIRRORS = "transformers 5.24.0 models/ernie4_5_moe/modeling_ernie4_5_moe.py, experts implementation grouped_mm"


def define(m: Structure) -> Definition:
    yield from decoder(m, lambda kind: block_rows(m, kind))
    if m.has("attention_bias"):
        yield Row("lm_head.bias", "V", "linear")


def block_rows(m: Structure, kind: str) -> Iterator[Row]:
    biased = m.has("attention_bias")
    yield from attention_rows(biased)
    if kind == "dense":
        yield from dense_rows(biased)
    else:
        yield from router_rows(m, "mlp.gate", "fp32")
        yield Row("mlp.gate.moe_statics.e_score_correction_bias", "1 E", "unused", "fp32")
        yield from expert_rows(m, "mlp.experts")
        if m.has("shared_experts"):
            yield from dense_rows(biased, "mlp.shared_experts", "y")
    yield from rms_norm("input_layernorm")
    yield from rms_norm("post_attention_layernorm")


def forward(m: Structure, ids: Tensor) -> Tensor:
    return moe_lm(m, lambda: model(m, ids))


def model(m: Structure, ids: Tensor) -> Tensor:
    with scope("model"):
        x = inputs_embeds = embed(ids, "embed_tokens")
        position_ids = positions()
        mask = causal_mask(m, x.dtype)
        cos, sin = ernie4_5.in_fp32(m, x.dtype)
        for kind in m.layers("layers"):
            x = m.layer(block, x, cos, sin, mask, position_ids, kind == "dense")
        x = rms(x, "norm")
        del inputs_embeds
        return x


def block(m: Structure, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None, position_ids: Tensor,
          dense: bool) -> Tensor:
    return llama.pre_norm(x, lambda x: llama.attention(m, x, cos, sin, mask, ernie4_5.turned),
                          lambda x: llama.mlp(m, x) if dense else moe(m, x))


def moe(m: Structure, x: Tensor) -> Tensor:
    """Ernie4_5_MoeSparseMoeBlock. The router's logits live until it returns."""
    with scope("mlp"):
        shape = x.dims
        x = view(x, "(b s) h")
        shared = llama.mlp(m, x, "shared_experts") if m.has("shared_experts") else None
        logits, weights, numbers = route(x)
        output = experts(m, x, numbers, weights)
        if shared is not None:
            output = add(output, shared)
        output = reshape(output, shape)
        del logits
        return output


def route(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Ernie4_5_MoeTopKRouter: a softmax in fp32, chosen with a correction, divided by what was chosen."""
    with scope("gate"):
        delta = router_delta()
        with autocast_off():
            rows = cast(x, "fp32", "rows in fp32")
            w = router_weight(delta)
            logits = product(rows, w, None)
            del rows
            if (seen := current().router_logits) is not None:
                seen.append(logits)
            chances = softmax(logits, "fp32")
            bias = view(weight("moe_statics.e_score_correction_bias"), "E")
            corrected, numbers = topk(add(chances, bias, "corrected"), "K")
            chances = gather(chances, numbers)
            chances = quotient(chances, clamp(total_over(chances, 1, keep=True), 1))
        chances = cast(chances, x.dtype, "expert weights")
        del corrected, delta, w
        return logits, chances, numbers
