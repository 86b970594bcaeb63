"""BLOOM, as transformers 5.24 runs it (models/bloom/modeling_bloom.py): alibi, q, k, v in one matrix, eager only."""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.definition import Definition, Layers, Row, embedding, layer_norm, linear, lm_head
from peakmem.estimate import weights
from peakmem.estimate.alibi import bloom_distances, distances_and_scores
from peakmem.estimate.attention import bmm, keys_as
from peakmem.estimate.gelu import bloom_gelu
from peakmem.estimate.inference import cached
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.masks import full_mask
from peakmem.estimate.ops import add, cast, dropout, softmax
from peakmem.estimate.shapes import reshape, select, swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, project

MIRRORS = "transformers 5.24.0 models/bloom/modeling_bloom.py"


def define(m: Structure) -> Definition:
    yield from embedding("transformer.word_embeddings", "V", "h")
    yield from layer_norm("transformer.word_embeddings_layernorm")
    yield Layers("transformer.h", lambda kind: block_rows())
    yield from layer_norm("transformer.ln_f")
    yield from lm_head(m)


def block_rows() -> Iterator[Row]:
    yield from layer_norm("input_layernorm")
    yield from linear("self_attention.query_key_value", "(a 3 d)", "h", True)
    yield from linear("self_attention.dense", "h", "(a d)", True)
    yield from layer_norm("post_attention_layernorm")
    yield from linear("mlp.dense_h_to_4h", "f", "h", True)
    yield from linear("mlp.dense_4h_to_h", "h", "f", True)


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: model(m, ids), "transformer.word_embeddings")


def model(m: Structure, ids: Tensor) -> Tensor:
    with scope("transformer"):
        inputs_embeds = embed(ids, "word_embeddings")
        x = weights.layer_norm(inputs_embeds, "word_embeddings_layernorm")
        alibi, slopes = bloom_distances(m, x.dtype)
        mask = full_mask(m, inputs_embeds.dtype, packed=False)
        for _ in m.layers("h"):
            outputs = m.both(block, x, alibi, mask)
            x = outputs[0]
        x = weights.layer_norm(x, "ln_f")
        del inputs_embeds, outputs, slopes
        return x


def block(m: Structure, x: Tensor, alibi: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    normed = weights.layer_norm(x, "input_layernorm")
    residual = normed if m.has("residual_after_norm") else x
    attended, probabilities = attention(m, normed, residual, alibi, mask)
    normed = weights.layer_norm(attended, "post_attention_layernorm")
    residual = normed if m.has("residual_after_norm") else attended
    out = mlp(m, normed, residual)
    return out, probabilities


def attention(m: Structure, x: Tensor, residual: Tensor, alibi: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    with scope("self_attention"):
        fused = project(x, "query_key_value")
        split = view(fused, "b s a 3 d")
        q, k, v = (swap(select(split, 3), "b a s d") for _ in range(3))
        k, v = cached(m, k, v)
        q = reshape(q, "(b a) s d")
        k = swap(reshape(keys_as(k), "(b a) s' d"), "(b a) d s'")
        v = reshape(keys_as(v), "(b a) s' d")
        scores = distances_and_scores(alibi, q, k)
        numbers = view(scores, "b a s s'")
        numbers = add(numbers, mask, "scores, masked")
        probabilities = cast(softmax(numbers, "fp32"), q.dtype, "probabilities")
        probabilities = dropout(probabilities, m.drops("attention"))
        context = bmm(view(probabilities, "(b a) s s'"), v)
        context = reshape(swap(view(context, "b a s d"), "b s a d"), "b s (a d)")
        out = project(context, "dense")
        out = add(residual, dropout(out, m.drops("hidden")))
        del fused
        return out, probabilities


def mlp(m: Structure, x: Tensor, residual: Tensor) -> Tensor:
    with scope("mlp"):
        x = bloom_gelu(project(x, "dense_h_to_4h"))
        out = project(x, "dense_4h_to_h")
        return add(residual, dropout(out, m.drops("hidden")))
