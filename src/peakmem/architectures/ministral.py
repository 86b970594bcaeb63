"""Ministral, as transformers 5.24 runs it (models/ministral/modeling_ministral.py): Llama, some layers slide."""

from __future__ import annotations

from peakmem.architectures import llama
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor

MIRRORS = "transformers 5.24.0 models/ministral/modeling_ministral.py"

define = llama.define


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: llama.model(m, ids, masked=("full", "sliding")), "model.embed_tokens")
