"""Qwen2, as transformers 5.24 runs it (models/qwen2/modeling_qwen2.py): Llama with biases, and windows."""

from __future__ import annotations

from peakmem.architectures import llama
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor

MIRRORS = "transformers 5.24.0 models/qwen2/modeling_qwen2.py"

define = llama.define


def forward(m: Structure, ids: Tensor) -> Tensor:
    # The full mask is made even where every layer has a window.
    masks = ("full", "sliding") if "sliding" in m.kinds() else ("full",)
    return causal_lm(m, lambda: llama.model(m, ids, masked=masks), "model.embed_tokens")
