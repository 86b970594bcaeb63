"""RoBERTa with its masked language model head, as transformers 5.24 runs it (models/roberta/modeling_roberta.py).

BERT's layers; positions are counted from the tokens that are no padding.
"""

from __future__ import annotations

from peakmem.architectures.bert import GENERATES, INPUTS, LOSSES, block_rows, encoder, masked_lm, pooled, pooler
from peakmem.architectures.definition import Definition, Layers, Row, buffer, embedding, layer_norm, linear
from peakmem.estimate import weights
from peakmem.estimate.losses import tied_to
from peakmem.estimate.ops import activation, add, dropout
from peakmem.estimate.positions import made
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, project

MIRRORS = "transformers 5.24.0 models/roberta/modeling_roberta.py"
__all__ = ["GENERATES", "INPUTS", "LOSSES", "MIRRORS", "define", "forward"]


def define(m: Structure) -> Definition:
    yield from encoder_rows(m)
    if not pooled(m):
        yield from head_rows(m)


def encoder_rows(m: Structure, words: bool = True) -> Definition:
    if words:
        yield from embedding("roberta.embeddings.word_embeddings", "V", "h")
    yield from embedding("roberta.embeddings.token_type_embeddings", "T", "h")
    yield from layer_norm("roberta.embeddings.LayerNorm")
    yield from embedding("roberta.embeddings.position_embeddings", "P", "h")
    yield from buffer("roberta.embeddings.position_ids", "1 P", "int64")
    yield from buffer("roberta.embeddings.token_type_ids", "1 P", "int64")
    yield Layers("roberta.encoder.layer", lambda kind: block_rows())
    if pooled(m):
        yield from linear("roberta.pooler.dense", "h", "h", True)


def head_rows(m: Structure) -> Definition:
    yield Row("lm_head.bias", "V", reached=m.has("tied"))  # else the head has a bias of its own
    yield from linear("lm_head.dense", "h", "h", True)
    yield from layer_norm("lm_head.layer_norm")
    if not m.has("tied"):
        yield from linear("lm_head.decoder", "V", "h", True)


def forward(m: Structure, input_ids: Tensor, labels: Tensor | None = None) -> Tensor:
    return masked_lm(m, labels, lambda: model(m, input_ids), lambda hidden: head(m, hidden))


def model(m: Structure, ids: Tensor) -> Tensor:
    with scope("roberta"):
        embedded = embeddings(m, ids)
        hidden = encoder(m, embedded)
        if pooled(m):
            hidden = pooler(hidden)
        del embedded
        return hidden


def embeddings(m: Structure, ids: Tensor) -> Tensor:
    with scope("embeddings"):
        position_ids = counted_positions()
        token_type_ids = made("b s", "int64", "token type ids")
        inputs_embeds = embed(ids, "word_embeddings")
        token_type_embeds = embed(token_type_ids, "token_type_embeddings", inputs=False)
        x = add(inputs_embeds, token_type_embeds)
        position_embeds = embed(position_ids, "position_embeddings", inputs=False)
        x = add(x, position_embeds)
        x = weights.layer_norm(x, "LayerNorm")
        x = dropout(x, m.drops("embedding"))
        return x


def counted_positions(names: tuple[str, ...] = ("tokens so far, as mask", "with those before",
                                                "positions of tokens")) -> Tensor:
    """create_position_ids_from_input_ids: how many tokens that are no padding have come so far.

    names: what is computed of them in 32 bit; MPNet adds none that came before.
    """
    mask = made("b s", "bool", "what is no padding")
    mask = made("b s", "int32", "what is no padding, as numbers")
    counted = made("b s", "int64", "tokens so far")
    for name in names:
        counted = made("b s", "int32", name)
    result = made("b s", "int64", "positions")
    result = made("b s", "int64", "position ids")
    del mask, counted
    return result


def head(m: Structure, hidden: Tensor, base: str = "roberta") -> Tensor:
    """lm_head: a layer of its own, then the embedding matrix, then a bias for each token. base: whose embeddings."""
    with scope("lm_head"):
        bias = weights.weight("bias") if m.has("tied") else None
        x = project(hidden, "dense")
        x = activation(x, "gelu")
        x = weights.layer_norm(x, "layer_norm")
        x = project(x, "decoder", tied_to(m, f"{base}.embeddings.word_embeddings"), bias)
        return x
