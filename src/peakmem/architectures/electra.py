"""ELECTRA with its generator's head, as transformers 5.24 runs it (models/electra/modeling_electra.py).

BERT's layers, behind embeddings that may be narrower.
"""

from __future__ import annotations

from peakmem.architectures.bert import GENERATES, INPUTS, LOSSES, block_rows, embeddings, encoder, masked_lm, pooled
from peakmem.architectures.definition import Definition, Layers, Row, buffer, embedding, layer_norm, linear
from peakmem.estimate import weights
from peakmem.estimate.losses import tied_to
from peakmem.estimate.ops import activation
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import project

MIRRORS = "transformers 5.24.0 models/electra/modeling_electra.py"
__all__ = ["GENERATES", "INPUTS", "LOSSES", "MIRRORS", "define", "forward"]


def define(m: Structure) -> Definition:
    width = "e" if m.has("narrow_embedding") else "h"
    for name, rows in (("word", "V"), ("position", "P"), ("token_type", "T")):
        yield from embedding(f"electra.embeddings.{name}_embeddings", rows, width)
    yield from layer_norm("electra.embeddings.LayerNorm", width)
    for name in ("position_ids", "token_type_ids"):
        yield from buffer(f"electra.embeddings.{name}", "1 P", "int64")
    if m.has("narrow_embedding"):
        yield from linear("electra.embeddings_project", "h", "e", True)
    yield Layers("electra.encoder.layer", lambda kind: block_rows())
    if pooled(m):
        return
    yield from layer_norm("generator_predictions.LayerNorm", width)
    yield from linear("generator_predictions.dense", width, "h", True)
    if m.has("tied"):
        yield Row("generator_lm_head.bias", "V")
    else:
        yield from linear("generator_lm_head", "V", width, True)


def forward(m: Structure, input_ids: Tensor, labels: Tensor | None = None) -> Tensor:
    return masked_lm(m, labels, lambda: model(m, input_ids), lambda hidden: head(m, hidden))


def model(m: Structure, ids: Tensor) -> Tensor:
    with scope("electra"):
        embedded = embeddings(m, ids)
        if m.has("narrow_embedding"):
            embedded = project(embedded, "embeddings_project")
        hidden = encoder(m, embedded)
        del embedded
        return hidden


def head(m: Structure, hidden: Tensor) -> Tensor:
    scores = predictions(hidden)
    scores = project(scores, "generator_lm_head", tied_to(m, "electra.embeddings.word_embeddings"))
    return scores


def predictions(hidden: Tensor) -> Tensor:
    with scope("generator_predictions"):
        x = project(hidden, "dense")
        x = activation(x, "gelu")
        x = weights.layer_norm(x, "LayerNorm")
        return x
