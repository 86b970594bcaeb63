"""BERT with its masked language model head, as transformers 5.24 runs it (models/bert/modeling_bert.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from peakmem.architectures.definition import Definition, Layers, Row, buffer, embedding, layer_norm, linear
from peakmem.estimate import weights
from peakmem.estimate.attention import attend
from peakmem.estimate.layout import dims
from peakmem.estimate.losses import cross_entropy, tied_to, total
from peakmem.estimate.ops import activation, add, cast, dropout, tanh
from peakmem.estimate.outputs import hand_out
from peakmem.estimate.positions import made, rows_of_buffer
from peakmem.estimate.shapes import select, split_heads, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, project

MIRRORS = "transformers 5.24.0 models/bert/modeling_bert.py"
INPUTS = {"input_ids": ("b s", "int64"), "labels": ("b s", "int64")}
LOSSES = ("upcast", "sum")
GENERATES = False


def define(m: Structure) -> Definition:
    yield from embedding("bert.embeddings.word_embeddings", "V", "h")
    yield from embedding("bert.embeddings.position_embeddings", "P", "h")
    yield from embedding("bert.embeddings.token_type_embeddings", "T", "h")
    yield from layer_norm("bert.embeddings.LayerNorm")
    yield from buffer("bert.embeddings.position_ids", "1 P", "int64")
    yield from buffer("bert.embeddings.token_type_ids", "1 P", "int64")
    yield Layers("bert.encoder.layer", lambda kind: block_rows())
    if pooled(m):
        yield from linear("bert.pooler.dense", "h", "h", True)
        return
    yield Row("cls.predictions.bias", "V", reached=m.has("tied"))  # else the head has a bias of its own
    yield from linear("cls.predictions.transform.dense", "h", "h", True)
    yield from layer_norm("cls.predictions.transform.LayerNorm")
    if not m.has("tied"):
        yield from linear("cls.predictions.decoder", "V", "h", True)


def block_rows() -> Iterator[Row]:
    for name in ("query", "key", "value"):
        yield from linear(f"attention.self.{name}", "(a d)", "h", True)
    yield from linear("attention.output.dense", "h", "(a d)", True)
    yield from layer_norm("attention.output.LayerNorm")
    yield from linear("intermediate.dense", "f", "h", True)
    yield from linear("output.dense", "h", "f", True)
    yield from layer_norm("output.LayerNorm")


def forward(m: Structure, input_ids: Tensor, labels: Tensor | None = None) -> Tensor:
    return masked_lm(m, labels, lambda: model(m, input_ids), lambda hidden: head(m, hidden))


def masked_lm(m: Structure, labels: Tensor | None, run: Callable[[], Tensor],
              score: Callable[[Tensor], Tensor]) -> Tensor:
    """XxxForMaskedLM: `run` gives the last hidden states, of which `score` makes logits; or the bare encoder."""
    hidden = run()
    if pooled(m):
        return hidden
    scores = score(hidden)
    if m.run == "inference":
        return scores
    hand_out(scores)
    if labels is None:
        del hidden  # the sum is made outside the model
        return total(scores)
    with scope("loss"):
        # ForMaskedLMLoss casts them, which not all classes call
        judged = cast(scores, "fp32", "logits in fp32") if m.has("float_loss") else scores
        return cross_entropy(view(judged, "(b s) V"), labels)


def model(m: Structure, ids: Tensor) -> Tensor:
    with scope("bert"):
        embedded = embeddings(m, ids)
        hidden = encoder(m, embedded)
        if pooled(m):
            hidden = pooler(hidden)
        del embedded
        return hidden


def embeddings(m: Structure, ids: Tensor) -> Tensor:
    with scope("embeddings"):
        position_ids = rows_of_buffer()
        gathered = made("1 s", "int64", "token type ids")
        token_type_ids = gathered.seen_as(dims("b s"), ("s",))
        inputs_embeds = embed(ids, "word_embeddings")
        token_type_embeds = embed(token_type_ids, "token_type_embeddings", inputs=False)
        x = add(inputs_embeds, token_type_embeds)
        position_embeds = embed(position_ids, "position_embeddings", inputs=False)
        x = add(x, position_embeds)
        x = weights.layer_norm(x, "LayerNorm")
        x = dropout(x, m.drops("embedding"))
        return x


def encoder(m: Structure, x: Tensor) -> Tensor:
    """Without padding nothing is hidden: create_bidirectional_mask returns None, for eager code too."""
    with scope("encoder"):
        for _ in m.layers("layer"):
            x = m.layer(block, x)
        return x


def block(m: Structure, x: Tensor) -> Tensor:
    attended, _ = attention(m, x)
    wide = intermediate(m, attended)
    return output(m, wide, attended)


def attention(m: Structure, x: Tensor) -> tuple[Tensor, Tensor | None]:
    with scope("attention"):
        out, probabilities = self_attention(m, x)
        out = output(m, out, x)
        return out, probabilities


def self_attention(m: Structure, x: Tensor) -> tuple[Tensor, Tensor | None]:
    with scope("self"):
        q = split_heads(project(x, "query"), "b a s d")
        k = split_heads(project(x, "key"), "b a s d")
        v = split_heads(project(x, "value"), "b a s d")
        return attend(m, q, k, v, None, softmax_in="own", causal=False)


def output(m: Structure, given: Tensor, residual: Tensor) -> Tensor:
    """BertSelfOutput and BertOutput: the norm comes after the sum."""
    with scope("output"):
        x = project(given, "dense")
        x = dropout(x, m.drops("hidden"))
        x = weights.layer_norm(add(x, residual), "LayerNorm")
        return x


def intermediate(m: Structure, given: Tensor) -> Tensor:
    with scope("intermediate"):
        x = project(given, "dense")
        x = activation(x, m.activation)
        return x


def pooled(m: Structure) -> bool:
    """Whether BertModel itself runs, which has a pooler and no head: it has no loss to train with.

    bare: the same of a class whose encoder has no pooler.
    """
    return (m.has("pooler") or m.has("bare")) and m.run == "inference"


def pooler(hidden: Tensor) -> Tensor:
    """BertPooler: a layer on the first token. The hidden states are handed out beside it."""
    with scope("pooler"):
        first = select(hidden, 1)
        x = project(first, "dense")
        x = tanh(x)
        del first, hidden
        return x


def head(m: Structure, hidden: Tensor) -> Tensor:
    """cls: a layer of its own, then the embedding matrix, then a bias for each token."""
    with scope("cls.predictions"):
        bias = weights.weight("bias") if m.has("tied") else None
        x = transform(m, hidden)
        return project(x, "decoder", tied_to(m, "bert.embeddings.word_embeddings"), bias)


def transform(m: Structure, given: Tensor) -> Tensor:
    with scope("transform"):
        x = project(given, "dense")
        x = activation(x, m.activation)
        x = weights.layer_norm(x, "LayerNorm")
        return x
