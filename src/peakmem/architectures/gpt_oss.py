"""gpt-oss, as transformers 5.24 runs it (models/gpt_oss/modeling_gpt_oss.py): eager attention only.

Each head has a sink, one more score that takes probability and gives no value. Sliding and full layers in turn;
every feed-forward is experts with biases.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.definition import Definition, Row, attention_rows, decoder, rms_norm
from peakmem.architectures.mixtral import moe_lm
from peakmem.estimate.attention import keys_as, matmul, merged
from peakmem.estimate.experts import experts, topk
from peakmem.estimate.grouped_heads import repeat_heads
from peakmem.estimate.inference import cached
from peakmem.estimate.masks import layer_masks
from peakmem.estimate.norms import rms_cast_last
from peakmem.estimate.ops import activation, add, cast, dropout, mul, scale, shift, softmax, sub
from peakmem.estimate.positions import half_table, positions
from peakmem.estimate.rotary_pairs import rotate_halves
from peakmem.estimate.routers import largest
from peakmem.estimate.shapes import cat, expand, piece, reshape, split_heads, swap, view
from peakmem.estimate.slices import clamp, every_second
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, current, scope
from peakmem.estimate.weights import embed, product, project, weight

MIRRORS = "transformers 5.24.0 models/gpt_oss/modeling_gpt_oss.py, experts implementation grouped_mm"


def define(m: Structure) -> Definition:
    yield from decoder(m, lambda kind: block_rows(m))


def block_rows(m: Structure) -> Iterator[Row]:
    biased = m.has("attention_bias")
    yield Row("self_attn.sinks", "a")
    yield from attention_rows(biased)
    yield Row("mlp.router.weight", "E h")
    yield Row("mlp.router.bias", "E")
    for name, shape in (("gate_up_proj", "E h (2 x)"), ("gate_up_proj_bias", "E (2 x)"), ("down_proj", "E x h"),
                        ("down_proj_bias", "E h")):
        yield Row(f"mlp.experts.{name}", shape, "expert")
    yield from rms_norm("input_layernorm")
    yield from rms_norm("post_attention_layernorm")


def forward(m: Structure, ids: Tensor) -> Tensor:
    return moe_lm(m, lambda: model(m, ids))


def model(m: Structure, ids: Tensor) -> Tensor:
    with scope("model"):
        x = inputs_embeds = embed(ids, "embed_tokens")
        position_ids = positions()
        masks = layer_masks(m, x.dtype, ("full", "sliding"), packed=False)
        cos, sin = half_table(x.dtype)
        for kind in m.layers("layers"):
            x = m.layer(block, x, cos, sin, masks[kind], position_ids)
        x = rms_cast_last(x, "norm")
        del inputs_embeds
        return x


def block(m: Structure, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None, position_ids: Tensor) -> Tensor:
    residual = x
    x = rms_cast_last(x, "input_layernorm")
    x, other = attention(m, x, cos, sin, mask)
    x = residual + x
    residual = x
    x = rms_cast_last(x, "post_attention_layernorm")
    x, other = mlp(m, x)
    x = residual + x
    del other
    return x


def attention(m: Structure, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    with scope("self_attn"):
        q = split_heads(project(x, "q_proj"), "b a s d")
        k = split_heads(project(x, "k_proj"), "b k s d")
        v = split_heads(project(x, "v_proj"), "b k s d")
        q, k = rotate_halves(q, cos, sin, "d"), rotate_halves(k, cos, sin, "d")
        k, v = cached(m, k, v)
        x, probabilities = with_sinks(m, q, k, v, mask)
        return project(x, "o_proj"), probabilities


def with_sinks(m: Structure, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """eager_attention_forward: the sinks are one more column of scores, cut off after the softmax."""
    keys = repeat_heads(k) if m.has("grouped_heads") else k
    values = repeat_heads(v) if m.has("grouped_heads") else v
    keys, values = keys_as(keys), keys_as(values)
    b, a, t, d = keys.dims
    weights = scale(matmul(q, swap(keys, (b, a, d, t))), "scores, scaled")
    if mask is not None:
        weights = add(weights, mask, "scores, masked")
    sinks = expand(view(weight("sinks"), "1 a 1 1"), "b a s 1")
    combined = cat([weights, sinks], "b a s s'+1", "scores and sinks")
    combined = sub(combined, largest(combined, keep=True), "scores, shifted")
    probs = softmax(combined, combined.dtype)
    scores = piece(probs, 3, "s'")
    weights = cast(dropout(scores, m.drops("attention")), v.dtype, "probabilities")
    output = merged(matmul(weights, values))
    del sinks, probs, scores
    return output, weights


def mlp(m: Structure, x: Tensor) -> tuple[Tensor, Tensor]:
    """GptOssMLP: the router's logits live until it returns, its scores until the layer does."""
    with scope("mlp"):
        shape = x.dims
        x = reshape(x, "(b s) h")
        logits, scores, indices = router(x)
        x = experts(m, x, indices, scores, clamped_swiglu, biased=True)
        x = reshape(x, shape)
        del logits, indices
        return x, scores


def router(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """GptOssTopKRouter: softmax over the chosen logits alone."""
    with scope("router"):
        logits = product(x, weight("weight"), weight("bias"))
        if (seen := current().router_logits) is not None:
            seen.append(logits)
        values, numbers = topk(logits, "K")
        scores = softmax(values, values.dtype)
        return logits, scores, numbers


def clamped_swiglu(m: Structure, gate_up: Tensor) -> Tensor:
    """GptOssExperts._apply_gate: gate and up lie in turn; (up + 1)·gate·sigmoid(gate·alpha), both clamped."""
    gate, up = every_second(gate_up, "x"), every_second(gate_up, "x")
    gate = clamp(gate, 1)
    up = clamp(up, 2)
    glu = mul(gate, activation(scale(gate), "sigmoid"), "glu")
    return mul(shift(up), glu, "gated")
