"""DistilBERT with its masked language model head (transformers 5.24, models/distilbert/modeling_distilbert.py)."""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.bert import GENERATES, INPUTS, LOSSES, masked_lm, pooled
from peakmem.architectures.definition import Definition, Layers, Row, buffer, embedding, layer_norm, linear
from peakmem.estimate import weights
from peakmem.estimate.attention import attend
from peakmem.estimate.losses import tied_to
from peakmem.estimate.ops import activation, add, dropout
from peakmem.estimate.positions import rows_of_buffer
from peakmem.estimate.shapes import split_heads
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, project

MIRRORS = "transformers 5.24.0 models/distilbert/modeling_distilbert.py"
__all__ = ["GENERATES", "INPUTS", "LOSSES", "MIRRORS", "define", "forward"]


def define(m: Structure) -> Definition:
    yield from embedding("distilbert.embeddings.word_embeddings", "V", "h")
    yield from embedding("distilbert.embeddings.position_embeddings", "P", "h")
    yield from layer_norm("distilbert.embeddings.LayerNorm")
    yield from buffer("distilbert.embeddings.position_ids", "1 P", "int64")
    yield Layers("distilbert.transformer.layer", lambda kind: block_rows())
    if pooled(m):
        return
    yield from linear("vocab_transform", "h", "h", True)
    yield from layer_norm("vocab_layer_norm")
    if m.has("tied"):
        yield Row("vocab_projector.bias", "V")
    else:
        yield from linear("vocab_projector", "V", "h", True)


def block_rows() -> Iterator[Row]:
    for name in ("q_lin", "k_lin", "v_lin", "out_lin"):
        yield from linear(f"attention.{name}", *(("h", "(a d)") if name == "out_lin" else ("(a d)", "h")), True)
    yield from layer_norm("sa_layer_norm")
    yield from linear("ffn.lin1", "f", "h", True)
    yield from linear("ffn.lin2", "h", "f", True)
    yield from layer_norm("output_layer_norm")


def forward(m: Structure, input_ids: Tensor, labels: Tensor | None = None) -> Tensor:
    return masked_lm(m, labels, lambda: model(m, input_ids), lambda hidden: head(m, hidden))


def head(m: Structure, hidden: Tensor) -> Tensor:
    x = project(hidden, "vocab_transform")
    x = activation(x, m.activation)
    x = weights.layer_norm(x, "vocab_layer_norm")
    x = project(x, "vocab_projector", tied_to(m, "distilbert.embeddings.word_embeddings"))
    return x


def model(m: Structure, ids: Tensor) -> Tensor:
    with scope("distilbert"):
        embedded = embeddings(m, ids)
        x = embedded
        with scope("transformer"):
            for _ in m.layers("layer"):
                x = m.layer(block, x)
        del embedded
        return x


def embeddings(m: Structure, ids: Tensor) -> Tensor:
    with scope("embeddings"):
        inputs_embeds = embed(ids, "word_embeddings")
        position_embeddings = embed(rows_of_buffer(), "position_embeddings", inputs=False)
        x = add(inputs_embeds, position_embeddings)
        x = weights.layer_norm(x, "LayerNorm")
        x = dropout(x, m.drops("embedding"))
        return x


def block(m: Structure, x: Tensor) -> Tensor:
    attended, _ = attention(m, x)
    attended = weights.layer_norm(add(attended, x), "sa_layer_norm")
    fed_forward = feed_forward(m, attended)
    fed_forward = weights.layer_norm(add(fed_forward, attended), "output_layer_norm")
    return fed_forward


def attention(m: Structure, x: Tensor) -> tuple[Tensor, Tensor | None]:
    with scope("attention"):
        q = split_heads(project(x, "q_lin"), "b a s d")
        k = split_heads(project(x, "k_lin"), "b a s d")
        v = split_heads(project(x, "v_lin"), "b a s d")
        out, probabilities = attend(m, q, k, v, None, softmax_in="own", causal=False)
        out = project(out, "out_lin")
        return out, probabilities


def feed_forward(m: Structure, given: Tensor) -> Tensor:
    with scope("ffn"):
        x = project(given, "lin1")
        x = activation(x, m.activation)
        x = project(x, "lin2")
        x = dropout(x, m.drops("hidden"))
        return x
