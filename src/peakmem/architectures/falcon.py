"""Falcon, as transformers 5.24 runs it (models/falcon/modeling_falcon.py): 7b, 40b and 180b, 11b, RW with alibi."""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.definition import (
    Definition,
    Layers,
    Row,
    embedding,
    layer_norm,
    linear,
    lm_head,
    rotary_buffers,
    unpacked,
)
from peakmem.architectures.falcon_attention import attention, falcon_linear
from peakmem.estimate import weights
from peakmem.estimate.alibi import falcon_distances, falcon_mask
from peakmem.estimate.inplace import add_into
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.masks import full_mask, where
from peakmem.estimate.ops import activation, add, dropout
from peakmem.estimate.positions import positions, rotary
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed

MIRRORS = "transformers 5.24.0 models/falcon/modeling_falcon.py"


def define(m: Structure) -> Definition:
    yield from embedding("transformer.word_embeddings", "V", "h")
    yield Layers("transformer.h", lambda kind: block_rows(m))
    yield from layer_norm("transformer.ln_f")
    yield from rotary_buffers(m, "transformer.rotary_emb")
    yield from lm_head(m)


def block_rows(m: Structure) -> Iterator[Row]:
    biased = m.has("attention_bias")
    qkv = "(k a/k+2 d)" if m.has("grouped_qkv") else "(a+2 d)" if m.has("broadcast_heads") else "(a 3 d)"
    sizes = {"self_attention.query_key_value": (qkv, "h"), "self_attention.dense": ("h", "(a d)"),
             "mlp.dense_h_to_4h": ("f", "h"), "mlp.dense_4h_to_h": ("h", "f")}
    for name, (outputs, inputs) in sizes.items():  # FalconLinear
        yield from unpacked(linear(name, outputs, inputs, biased), "not by bitsandbytes")
    if m.has("two_norms"):
        yield from layer_norm("ln_attn")
        yield from layer_norm("ln_mlp")
        return
    if not m.has("parallel_residual"):
        yield from layer_norm("post_attention_layernorm")
    yield from layer_norm("input_layernorm")


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: model(m, ids), "transformer.word_embeddings")


def model(m: Structure, ids: Tensor) -> Tensor:
    with scope("transformer"):
        x = inputs_embeds = embed(ids, "word_embeddings")
        alibi = ones = None
        if m.has("alibi"):
            alibi, ones = falcon_distances(m, x.dtype)
        position_ids = positions()
        mask = full_mask(m, x.dtype)
        if alibi is not None:
            if mask.dtype == "bool":
                mask = where(mask, "b 1 s s'", alibi.dtype, "causal mask as numbers")
            alibi, mask = falcon_mask(m, alibi, mask)
        tables = rotary(m, x.dtype)
        for _ in m.layers("h"):
            outputs = m.both(block, x, alibi, mask, position_ids, tables)
            x = outputs[0]
        x = weights.layer_norm(x, "ln_f")
        del inputs_embeds, outputs, ones
        return x


def block(m: Structure, x: Tensor, alibi: Tensor | None, mask: Tensor, position_ids: Tensor,
          tables: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor | None]:
    residual = x
    if m.has("two_norms"):
        normed = weights.layer_norm(x, "ln_attn")
        mlp_normed = weights.layer_norm(x, "ln_mlp")
    else:
        normed = weights.layer_norm(x, "input_layernorm")
    attended, probabilities = attention(m, normed, alibi, mask, tables)
    if not m.has("parallel_residual"):
        residual = add(residual, dropout(attended, m.drops("attention")))
        mlp_normed = weights.layer_norm(residual, "post_attention_layernorm")
    elif not m.has("two_norms"):
        mlp_normed = normed
    fed_forward = mlp(m, mlp_normed)
    if m.has("parallel_residual"):
        fed_forward = add_into(fed_forward, attended)
    x = add(residual, dropout(fed_forward, m.drops("hidden")))
    return x, probabilities


def mlp(m: Structure, x: Tensor) -> Tensor:
    with scope("mlp"):
        x = activation(falcon_linear(x, "dense_h_to_4h"), m.activation)
        x = falcon_linear(x, "dense_4h_to_h")
        return x
