"""Helium, as transformers 5.24 runs it (models/helium/modeling_helium.py): Llama that turns neighbours."""

from __future__ import annotations

from peakmem.architectures import llama
from peakmem.estimate.interleaved import repeated_twice, rotate_pairs
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.norms import rms_in_fp32
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor

MIRRORS = "transformers 5.24.0 models/helium/modeling_helium.py"

define = llama.define


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: llama.model(m, ids, block, norm=rms_in_fp32), "model.embed_tokens")


def block(m: Structure, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None,
          position_ids: Tensor) -> Tensor:
    return llama.pre_norm(x, lambda x: llama.attention(m, x, cos, sin, mask, turned), lambda x: llama.mlp(m, x),
                          rms_in_fp32)


def turned(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """apply_rotary_pos_emb: each number of half a table twice in a row."""
    cos = repeated_twice(cos, "d", "cosines")
    sin = repeated_twice(sin, "d", "sines")
    q_embed = rotate_pairs(q, cos, sin, "d/2")
    k_embed = rotate_pairs(k, cos, sin, "d/2")
    return q_embed, k_embed
