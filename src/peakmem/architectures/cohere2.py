"""Command-R7B and Command-A, as transformers 5.24 runs them (models/cohere2/modeling_cohere2.py): Cohere with windows.

Sliding layers turn queries and keys, full ones do not.
"""

from __future__ import annotations

from peakmem.architectures import cohere
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor

MIRRORS = "transformers 5.24.0 models/cohere2/modeling_cohere2.py"

define = cohere.define


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: cohere.model(m, ids, ("full", "sliding")), "model.embed_tokens")
