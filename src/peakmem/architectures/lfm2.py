"""LFM2, as transformers 5.24 runs it (models/lfm2/modeling_lfm2.py): short gated convolutions, now and then attention.

Its mixtures (models/lfm2_moe/modeling_lfm2_moe.py) have dense layers first, then experts.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.definition import (
    Definition,
    Layers,
    Row,
    buffer,
    embedding,
    linear,
    lm_head,
    rms_norm,
    rotary_buffers,
)
from peakmem.architectures.mixtral import expert_rows, router_rows
from peakmem.estimate.attention import attend
from peakmem.estimate.causal_conv import remembered_conv1d
from peakmem.estimate.experts import experts, topk
from peakmem.estimate.inference import cached
from peakmem.estimate.layout import dims
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.masks import causal_mask
from peakmem.estimate.ops import activation, add, mul, scale, shift, total_over
from peakmem.estimate.param_adapters import router_delta, router_weight
from peakmem.estimate.positions import positions, rotary, rotate
from peakmem.estimate.routers import gather, quotient
from peakmem.estimate.shapes import contiguous, piece, reshape, split, swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, current, scope
from peakmem.estimate.weights import embed, product, project, rms

MIRRORS = ("transformers 5.24.0 models/lfm2/modeling_lfm2.py and models/lfm2_moe/modeling_lfm2_moe.py, without "
           "causal-conv1d, experts implementation grouped_mm")


def define(m: Structure) -> Definition:
    sparse = m.architecture == "lfm2_moe"
    yield from embedding("model.embed_tokens", "V", "h")
    yield Layers("model.layers", lambda kind: block_rows(m, kind))
    if not sparse:
        yield from rotary_buffers(m)
    yield from rms_norm("model.embedding_norm")
    if sparse:
        yield from rotary_buffers(m, "model.pos_emb")
    yield from lm_head(m)


def block_rows(m: Structure, kind: str) -> Iterator[Row]:
    if kind.startswith("full"):
        yield from linear("self_attn.q_proj", "(a d)", "h")
        yield from linear("self_attn.k_proj", "(k d)", "h")
        yield from linear("self_attn.v_proj", "(k d)", "h")
        yield from linear("self_attn.out_proj", "h", "(a d)")
        yield from rms_norm("self_attn.q_layernorm", "d")
        yield from rms_norm("self_attn.k_layernorm", "d")
    else:
        biased = m.has("conv_bias")
        yield Row("conv.conv.weight", "h 1 q")
        if biased:
            yield Row("conv.conv.bias", "h")
        yield from linear("conv.in_proj", "(3 h)", "h", biased)
        yield from linear("conv.out_proj", "h", "h", biased)
    if kind.endswith("moe"):
        yield from expert_rows(m, "feed_forward.experts")
        yield from router_rows(m, "feed_forward.gate")
        if m.has("correction_bias"):
            yield from buffer("feed_forward.expert_bias", "E", "fp32")
    else:
        yield from linear("feed_forward.w1", "f", "h")
        yield from linear("feed_forward.w3", "f", "h")
        yield from linear("feed_forward.w2", "h", "f")
    yield from rms_norm("operator_norm")
    yield from rms_norm("ffn_norm")


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: model(m, ids), "model.embed_tokens")


def model(m: Structure, ids: Tensor) -> Tensor:
    with scope("model"):
        x = inputs_embeds = embed(ids, "embed_tokens")
        position_ids = positions()
        mask = causal_mask(m, x.dtype)
        cos, sin = rotary(m, x.dtype)
        for kind in m.layers("layers"):
            x = m.layer(block, x, cos, sin, mask if kind.startswith("full") else None, position_ids, kind)
        x = rms(x, "embedding_norm")
        del inputs_embeds
        return x


def block(m: Structure, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None, position_ids: Tensor,
          kind: str) -> Tensor:
    residual = x
    probabilities = None
    if kind.startswith("full"):
        x, probabilities = attention(m, rms(x, "operator_norm"), cos, sin, mask)
    else:
        x = short_conv(m, rms(x, "operator_norm"))
    x = x + residual
    x = x + (moe if kind.endswith("moe") else mlp)(m, rms(x, "ffn_norm"))
    del residual, probabilities
    return x


def attention(m: Structure, x: Tensor, cos: Tensor, sin: Tensor,
              mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Lfm2Attention: norms on each head's queries and keys, before they are turned."""
    with scope("self_attn"):
        q = swap(rms(view(project(x, "q_proj"), "b s a d"), "q_layernorm"), "b a s d")
        k = swap(rms(view(project(x, "k_proj"), "b s k d"), "k_layernorm"), "b k s d")
        v = swap(view(project(x, "v_proj"), "b s k d"), "b k s d")
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = cached(m, k, v)
        out, probabilities = attend(m, q, k, v, mask)
        return project(out, "out_proj"), probabilities


def short_conv(m: Structure, x: Tensor) -> Tensor:
    """Lfm2ShortConv: a convolution over a few tokens, of what one gate lets in; another gate lets it out."""
    with scope("conv"):
        projected = swap(project(x, "in_proj"), "b (3 h) s")
        b, c, taken = split(projected, 1, ["h", "h", "h"])
        out = mul(b, taken, "gated input")
        out = remembered_conv1d(m, out, "", "h", name="conv")
        if m.run == "inference" and not current().single:
            out = piece(out, 2, "s")
        y = mul(c, out, "gated output")
        y = contiguous(swap(y, "b s h"))
        y = project(y, "out_proj")
        del projected, b, taken, out
        return y


def mlp(m: Structure, x: Tensor) -> Tensor:
    """Lfm2MLP."""
    with scope("feed_forward"):
        return project(activation(project(x, "w1"), "silu") * project(x, "w3"), "w2")


def moe(m: Structure, x: Tensor) -> Tensor:
    """Lfm2MoeSparseMoeBlock. The router's logits live until it returns."""
    with scope("feed_forward"):
        rows = view(x, "(b s) h")
        logits, weights, numbers = router(m, rows)
        out = experts(m, rows, numbers, weights)
        out = reshape(out, x.dims)
        del logits, weights, numbers
        return out


def router(m: Structure, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Lfm2MoeTopKRouter: sigmoid scores in the dtype of the logits; a bias only chooses."""
    with scope("gate"):
        delta = router_delta()
        w = router_weight(delta)
        logits = product(x, w, None)
        if (seen := current().router_logits) is not None:
            seen.append(logits)
        weights = activation(logits, "sigmoid")
        choice = largest = None
        if m.has("correction_bias"):
            choice = add(weights, Tensor(dims("E"), "fp32", ("E",), None), "scores for the choice")
            largest, numbers = topk(choice, "K")
            weights = gather(weights, numbers)
        else:
            weights, numbers = topk(weights, "K")
        if m.has("norm_topk"):
            weights = quotient(weights, shift(total_over(weights, 1, keep=True)))
        weights = scale(weights, "expert weights")
        del choice, largest, delta, w
        return logits, weights, numbers
