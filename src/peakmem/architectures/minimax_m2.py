"""MiniMax-M2, as transformers 5.24 runs it (models/minimax_m2/modeling_minimax_m2.py).

Norms on q and k span all heads, a part of each head is turned; every feed-forward is experts, chosen by sigmoid scores
and a correction.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures import llama
from peakmem.architectures.definition import Definition, Row, attention_rows, buffer, decoder, rms_norm
from peakmem.architectures.mixtral import expert_rows, moe_lm, router_rows
from peakmem.estimate.attention import attend
from peakmem.estimate.experts import divide_in_place, experts, topk
from peakmem.estimate.inference import cached
from peakmem.estimate.layout import dims
from peakmem.estimate.ops import activation, add, cast, total_over
from peakmem.estimate.param_adapters import router_delta, router_weight
from peakmem.estimate.positions import rotate_both
from peakmem.estimate.routers import gather
from peakmem.estimate.shapes import reshape, split_heads, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, current, scope
from peakmem.estimate.weights import product, project, rms

MIRRORS = "transformers 5.24.0 models/minimax_m2/modeling_minimax_m2.py, experts implementation grouped_mm"


def define(m: Structure) -> Definition:
    yield from decoder(m, lambda kind: block_rows(m))


def block_rows(m: Structure) -> Iterator[Row]:
    yield from attention_rows(False, False)
    yield from rms_norm("self_attn.q_norm", "(a d)")
    yield from rms_norm("self_attn.k_norm", "(k d)")
    yield from router_rows(m, "mlp.gate")
    yield from expert_rows(m, "mlp.experts")
    yield from buffer("mlp.e_score_correction_bias", "E")
    yield from rms_norm("input_layernorm")
    yield from rms_norm("post_attention_layernorm")


def forward(m: Structure, ids: Tensor) -> Tensor:
    return moe_lm(m, lambda: llama.model(m, ids, block))


def block(m: Structure, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None, position_ids: Tensor) -> Tensor:
    return llama.pre_norm(x, lambda x: attention(m, x, cos, sin, mask), lambda x: moe(m, x))


def attention(m: Structure, x: Tensor, cos: Tensor, sin: Tensor,
              mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    with scope("self_attn"):
        q = rms(project(x, "q_proj"), "q_norm")
        k = rms(project(x, "k_proj"), "k_norm")
        v = project(x, "v_proj")
        q, k, v = split_heads(q, "b a s d"), split_heads(k, "b k s d"), split_heads(v, "b k s d")
        q, k = rotate_both(m, q, k, cos, sin)
        k, v = cached(m, k, v)
        x, probabilities = attend(m, q, k, v, mask)
        return project(x, "o_proj"), probabilities


def moe(m: Structure, x: Tensor) -> Tensor:
    """MiniMaxM2SparseMoeBlock. The router's logits live until it returns."""
    with scope("mlp"):
        shape = x.dims
        x = view(x, "(b s) h")
        logits, weights, numbers = router(x)
        x = experts(m, x, numbers, weights)
        x = reshape(x, shape)
        del logits, weights, numbers
        return x


def router(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """MiniMaxM2TopKRouter: logits, and each row's K weights and expert numbers."""
    with scope("gate"):
        delta = router_delta()
        x = view(x, "(b s) h")
        w = router_weight(delta)
        x_ = cast(x, w.dtype)
        logits = product(x_, w, None)
        del x_
        if (seen := current().router_logits) is not None:
            seen.append(logits)
        scores = activation(cast(logits, "fp32"), "sigmoid")
        bias = Tensor(dims("E"), "fp32", ("E",), None)
        choice = add(scores, bias, "scores for the choice")
        largest, numbers = topk(choice, "K")
        weights = gather(scores, numbers)
        weights = divide_in_place(weights, total_over(weights, 1, keep=True))
        del choice, scores, largest, delta, w
        return logits, weights, numbers
