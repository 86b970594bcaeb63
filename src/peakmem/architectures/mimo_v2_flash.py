"""MiMo-V2-Flash, as transformers 5.24 runs it (models/mimo_v2_flash/modeling_mimo_v2_flash.py): eager attention only.

Sliding layers have twice the key/value heads of full ones, and a sink for each head; values are narrower than keys;
one dense layer first, then DeepSeek-V3's experts without a shared one.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures import llama
from peakmem.architectures.definition import (
    Definition,
    Layers,
    Row,
    buffer,
    embedding,
    gated_rows,
    linear,
    lm_head,
    rms_norm,
)
from peakmem.architectures.mixtral import moe_lm
from peakmem.estimate.attention import keys_as, matmul, merged
from peakmem.estimate.experts import experts
from peakmem.estimate.grouped_heads import repeat_heads
from peakmem.estimate.inference import cached
from peakmem.estimate.layout import dims
from peakmem.estimate.masks import layer_masks
from peakmem.estimate.ops import add, cast, dropout, scale, softmax, sub
from peakmem.estimate.positions import positions, rotary_size, rotary_table, rotate_both
from peakmem.estimate.routers import group_router, largest
from peakmem.estimate.shapes import cat, expand, piece, split_heads, swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, project, rms, weight
from peakmem.immutable import replace

MIRRORS = "transformers 5.24.0 models/mimo_v2_flash/modeling_mimo_v2_flash.py, experts implementation grouped_mm"


def define(m: Structure) -> Definition:
    yield from embedding("model.embed_tokens", "V", "h")
    yield Layers("model.layers", lambda kind: block_rows(m, kind))
    yield from rms_norm("model.norm")
    size = rotary_size(m)
    for kind in attentions(m):
        yield from buffer(f"model.rotary_emb.{kind}_attention_inv_freq", f"{size}/2", "fp32")
        yield from buffer(f"model.rotary_emb.{kind}_attention_original_inv_freq", f"{size}/2", "fp32")
    yield from lm_head(m)


def attentions(m: Structure) -> list[str]:
    """The kinds of attention that occur."""
    return sorted({kind.partition(",")[0] for kind in m.kinds()})


def block_rows(m: Structure, kind: str) -> Iterator[Row]:
    biased, k = m.has("attention_bias"), group(kind)
    if kind.startswith("sliding"):
        yield Row("self_attn.sinks", "a")
    yield from linear("self_attn.q_proj", "(a d)", "h", biased)
    yield from linear("self_attn.k_proj", f"({k} d)", "h", biased)
    yield from linear("self_attn.v_proj", f"({k} dv)", "h", biased)
    yield from linear("self_attn.o_proj", "h", "(a dv)")
    if "dense" in kind:
        yield from gated_rows()
    else:  # peft's table of old names has no entry for this class: no adapter on experts and router
        yield Row("mlp.experts.gate_up_proj", "E (2 x) h")
        yield Row("mlp.experts.down_proj", "E h x")
        yield Row("mlp.gate.weight", "E h", "", "fp32")
        yield from buffer("mlp.gate.e_score_correction_bias", "E", "fp32")
    yield from rms_norm("input_layernorm")
    yield from rms_norm("post_attention_layernorm")


def group(kind: str) -> str:
    """The letter of a layer's key/value heads."""
    return "kw" if kind.startswith("sliding") else "k"


def forward(m: Structure, ids: Tensor) -> Tensor:
    return moe_lm(m, lambda: model(m, ids))


def model(m: Structure, ids: Tensor) -> Tensor:
    """The decoder. Masks and tables are made in the order of a set of words, which differs from run to run."""
    with scope("model"):
        x = inputs_embeds = embed(ids, "embed_tokens")
        position_ids = positions()
        masks = layer_masks(m, x.dtype, attentions(m))
        size = rotary_size(m)
        tables = {kind: rotary_table(x.dtype, f"{size}/2", size) for kind in attentions(m)}
        for kind in m.layers("layers"):
            word = kind.partition(",")[0]
            x = m.layer(block, x, masks[word], *tables[word], position_ids, kind)
        x = rms(x, "norm")
        del inputs_embeds
        return x


def block(m: Structure, x: Tensor, mask: Tensor | None, cos: Tensor, sin: Tensor, position_ids: Tensor,
          kind: str) -> Tensor:
    return llama.pre_norm(x, lambda x: attention(m, x, mask, cos, sin, kind),
                          lambda x: llama.mlp(m, x) if "dense" in kind else moe(m, x))


def attention(m: Structure, x: Tensor, mask: Tensor | None, cos: Tensor, sin: Tensor,
              kind: str) -> tuple[Tensor, Tensor]:
    with scope("self_attn"):
        k_heads = group(kind)
        q = split_heads(project(x, "q_proj"), "b a s d")
        k = split_heads(project(x, "k_proj"), f"b {k_heads} s d")
        v = scale(split_heads(project(x, "v_proj"), f"b {k_heads} s dv"), "values, scaled")
        q, k = rotate_both(m, q, k, cos, sin)
        k, v = cached(m, k, v)
        if m.has(f"whole_{k_heads}"):
            m = replace(m, switches=m.switches - {"grouped_heads"})
        x, probabilities = eager(m, q, k, v, mask, k_heads == "kw")
        return project(x, "o_proj"), probabilities


def eager(m: Structure, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, sunk: bool) -> tuple[Tensor, Tensor]:
    """eager_attention_forward: softmax in the dtype of the scores, among which a sink may be, which is cut off."""
    keys = repeat_heads(k) if m.has("grouped_heads") else k
    values = repeat_heads(v) if m.has("grouped_heads") else v
    keys, values = keys_as(keys), keys_as(values)
    b, a, t, d = keys.dims
    weights = scale(matmul(q, swap(keys, (b, a, d, t))), "scores, scaled")
    if mask is not None:
        weights = add(weights, mask, "scores, masked")
    sinks = None
    if sunk:
        sinks = expand(view(weight("sinks"), "1 a 1 1"), "b a s 1")
        weights = cat([weights, sinks], "b a s s'+1", "scores and sinks")
    weights = sub(weights, largest(weights, keep=True), "scores, shifted")
    probs = softmax(weights, weights.dtype)
    if sunk:
        probs = piece(probs, 3, "s'")
    weights = cast(dropout(probs, m.drops("attention")), v.dtype, "probabilities")
    output = merged(matmul(weights, values))
    del sinks, probs
    return output, weights


def moe(m: Structure, x: Tensor) -> Tensor:
    """MiMoV2FlashMoE. The router's logits live until it returns."""
    with scope("mlp"):
        logits, weights, numbers = group_router(m, x)
        x = view(x, "(b s) h")
        x = view(experts(m, x, numbers, weights), dims("b s h"))
        del logits, weights, numbers
        return x
