"""ERNIE 4.5, as transformers 5.24 runs it (models/ernie4_5/modeling_ernie4_5.py): neighbours are turned, in fp32."""

from __future__ import annotations

from peakmem.architectures import llama
from peakmem.estimate.interleaved import pairs_swapped, repeated_twice
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.ops import add, cast, mul
from peakmem.estimate.positions import rotary
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor

MIRRORS = "transformers 5.24.0 models/ernie4_5/modeling_ernie4_5.py"

define = llama.define


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: llama.model(m, ids, block, tables=in_fp32), "model.embed_tokens")


def in_fp32(m: Structure, dtype: str) -> tuple[Tensor, Tensor]:
    """The tables stay as they were made."""
    return rotary(m, "fp32")


def block(m: Structure, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None,
          position_ids: Tensor) -> Tensor:
    return llama.pre_norm(x, lambda x: llama.attention(m, x, cos, sin, mask, turned), lambda x: llama.mlp(m, x))


def turned(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """apply_rotary_pos_emb: each number of half a table twice in a row; what is turned is cast to fp32, and back."""
    cos = repeated_twice(cos, "d", "cosines")
    sin = repeated_twice(sin, "d", "sines")
    q_embed = rotate_in_fp32(q, cos, sin)
    k_embed = rotate_in_fp32(k, cos, sin)
    return cast(q_embed, q.dtype), cast(k_embed, k.dtype)


def rotate_in_fp32(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    straight = mul(cast(x, "fp32"), cos, "x·cos")
    return add(straight, mul(cast(pairs_swapped(x, "d/2"), "fp32"), sin, "rotated·sin"), "rotated")
