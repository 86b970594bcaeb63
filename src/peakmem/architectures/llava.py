"""LLaVA 1.5, as transformers 5.24 runs it (models/llava/modeling_llava.py), on text alone: CLIP's tower stands by."""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures import llama
from peakmem.architectures.clip import vision_rows
from peakmem.architectures.definition import Definition, Layers, Row, linear
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor

MIRRORS = "transformers 5.24.0 models/llava/modeling_llava.py"
RUNS = ("inference",)
TEXT = "model.language_model"


def define(m: Structure) -> Definition:
    yield from vision_rows("model.vision_tower")
    yield from linear("model.multi_modal_projector.linear_1", "h", "hi", m.has("projector_bias"))
    yield from linear("model.multi_modal_projector.linear_2", "h", "h", m.has("projector_bias"))
    yield from beside(llama.define(m))


def beside(rows: Definition) -> Iterator[Row | Layers]:
    """A decoder's rows where it is a part of another model; its head stays outside."""
    for row in rows:
        name = row.name if row.name.startswith("lm_head") else row.name.replace("model", TEXT, 1)
        yield row._replace(name=name)


def forward(m: Structure, ids: Tensor) -> Tensor:
    masks = tuple(kind for kind in ("full", "sliding") if kind in m.kinds())
    return causal_lm(m, lambda: llama.model(m, ids, masked=masks, name=TEXT), f"{TEXT}.embed_tokens")
