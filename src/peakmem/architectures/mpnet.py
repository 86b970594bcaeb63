"""MPNet with its masked language model head, as transformers 5.24 runs it (models/mpnet/modeling_mpnet.py).

Eager attention; one bias for each head and bucket of distances, which all layers add to their scores.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.bert import GENERATES, INPUTS, LOSSES, intermediate, masked_lm, output, pooled, pooler
from peakmem.architectures.definition import Definition, Layers, Row, buffer, embedding, layer_norm, linear
from peakmem.architectures.roberta import counted_positions, head
from peakmem.estimate import weights
from peakmem.estimate.attention import keys_as, matmul, merged
from peakmem.estimate.inplace import add_into
from peakmem.estimate.ops import add, dropout, scale, softmax
from peakmem.estimate.position_bias import buckets_of_distances
from peakmem.estimate.positions import made
from peakmem.estimate.shapes import contiguous, expand, split_heads, swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, project

MIRRORS = "transformers 5.24.0 models/mpnet/modeling_mpnet.py"
CHECKPOINTS = False
__all__ = ["CHECKPOINTS", "GENERATES", "INPUTS", "LOSSES", "MIRRORS", "define", "forward"]


def define(m: Structure) -> Definition:
    yield from embedding("mpnet.embeddings.word_embeddings", "V", "h")
    yield from embedding("mpnet.embeddings.position_embeddings", "P", "h")
    yield from layer_norm("mpnet.embeddings.LayerNorm")
    yield from buffer("mpnet.embeddings.position_ids", "1 P", "int64")
    yield Layers("mpnet.encoder.layer", lambda kind: block_rows())
    yield from embedding("mpnet.encoder.relative_attention_bias", "B", "a")
    if pooled(m):
        yield from linear("mpnet.pooler.dense", "h", "h", True)
        return
    yield Row("lm_head.bias", "V", reached=m.has("tied"))  # else the head has a bias of its own
    yield from linear("lm_head.dense", "h", "h", True)
    yield from layer_norm("lm_head.layer_norm")
    if not m.has("tied"):
        yield from linear("lm_head.decoder", "V", "h", True)


def block_rows() -> Iterator[Row]:
    for name in ("q", "k", "v"):
        yield from linear(f"attention.attn.{name}", "(a d)", "h", True)
    yield from linear("attention.attn.o", "h", "(a d)", True)
    yield from layer_norm("attention.LayerNorm")
    yield from linear("intermediate.dense", "f", "h", True)
    yield from linear("output.dense", "h", "f", True)
    yield from layer_norm("output.LayerNorm")


def forward(m: Structure, input_ids: Tensor, labels: Tensor | None = None) -> Tensor:
    return masked_lm(m, labels, lambda: model(m, input_ids), lambda hidden: head(m, hidden, "mpnet"))


def model(m: Structure, ids: Tensor) -> Tensor:
    with scope("mpnet"):
        embedded = embeddings(m, ids)
        hidden = encoder(m, embedded)
        if pooled(m):
            hidden = pooler(hidden)
        del embedded
        return hidden


def embeddings(m: Structure, ids: Tensor) -> Tensor:
    with scope("embeddings"):
        position_ids = counted_positions(("tokens so far, as mask", "positions of tokens"))
        inputs_embeds = embed(ids, "word_embeddings")
        position_embeds = embed(position_ids, "position_embeddings", inputs=False)
        x = add(inputs_embeds, position_embeds)
        x = weights.layer_norm(x, "LayerNorm")
        x = dropout(x, m.drops("embedding"))
        return x


def encoder(m: Structure, x: Tensor) -> Tensor:
    with scope("encoder"):
        bias = position_bias()
        for _ in m.layers("layer"):
            x = m.layer(block, x, bias)
        return x


def position_bias() -> Tensor:
    """compute_position_bias: a copy for every sequence, token by token."""
    queries = made("s 1", "int64", "query numbers")
    keys = made("1 s'", "int64", "key numbers")
    distances = made("s s'", "int64", "distances")
    numbers = buckets_of_distances("s s'")
    values = embed(numbers, "relative_attention_bias", inputs=False)
    values = view(swap(values, "a s s'"), "1 a s s'")
    values = contiguous(expand(values, "b a s s'"), "position bias")
    del queries, keys, distances, numbers
    return values


def block(m: Structure, x: Tensor, bias: Tensor) -> Tensor:
    attended = attention(m, x, bias)
    wide = intermediate(m, attended)
    return output(m, wide, attended)


def attention(m: Structure, x: Tensor, bias: Tensor) -> Tensor:
    with scope("attention"):
        attended = self_attention(m, x, bias)
        return weights.layer_norm(add(dropout(attended, m.drops("hidden")), x), "LayerNorm")


def self_attention(m: Structure, x: Tensor, bias: Tensor) -> Tensor:
    with scope("attn"):
        q = split_heads(project(x, "q"), "b a s d")
        k = split_heads(project(x, "k"), "b a s d")
        v = split_heads(project(x, "v"), "b a s d")
        keys, values = keys_as(k), keys_as(v)
        b, a, t, d = keys.dims
        scores = matmul(q, swap(keys, (b, a, d, t)))
        scores = scale(scores, "scores, scaled")
        scores = add_into(scores, bias)
        probabilities = softmax(scores)
        probabilities = dropout(probabilities, m.drops("attention"))
        c = merged(matmul(probabilities, values))
        o = project(c, "o")
        del scores, probabilities, c
        return o
