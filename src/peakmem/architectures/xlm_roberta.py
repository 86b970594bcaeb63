"""XLM-RoBERTa and CamemBERT, as transformers 5.24 runs them (models/xlm_roberta/modeling_xlm_roberta.py).

RoBERTa, whose head is made before the layers.
"""

from __future__ import annotations

from peakmem.architectures.bert import GENERATES, INPUTS, LOSSES, pooled
from peakmem.architectures.definition import Definition, embedding
from peakmem.architectures.roberta import encoder_rows, forward, head_rows
from peakmem.estimate.structure import Structure

MIRRORS = "transformers 5.24.0 models/xlm_roberta/modeling_xlm_roberta.py"
__all__ = ["GENERATES", "INPUTS", "LOSSES", "MIRRORS", "define", "forward"]


def define(m: Structure) -> Definition:
    """A tied head's matrix is the embeddings': met in the head, it stands there."""
    tied = m.has("tied") and not pooled(m)
    if not pooled(m):
        yield from head_rows(m)
    if tied:
        for row in embedding("roberta.embeddings.word_embeddings", "V", "h"):
            yield row._replace(within="lm_head.decoder")
    yield from encoder_rows(m, words=not tied)
