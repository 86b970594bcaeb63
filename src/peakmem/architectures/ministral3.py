"""Ministral 3, as transformers 5.24 runs it (models/ministral3/modeling_ministral3.py).

Mistral whose queries are scaled by their positions.
"""

from __future__ import annotations

from peakmem.architectures import llama
from peakmem.estimate.attention import attend
from peakmem.estimate.inference import cached
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.ops import mul
from peakmem.estimate.positions import made
from peakmem.estimate.shapes import swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import project

MIRRORS = "transformers 5.24.0 models/ministral3/modeling_ministral3.py"

define = llama.define


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: llama.model(m, ids, block, m.kinds()), "model.embed_tokens")


def block(m: Structure, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None,
          position_ids: Tensor) -> Tensor:
    return llama.pre_norm(x, lambda x: attention(m, x, cos, sin, mask), lambda x: llama.mlp(m, x))


def attention(m: Structure, x: Tensor, cos: Tensor, sin: Tensor,
              mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    with scope("self_attn"):
        q = llama.heads(m, x, "q", "a")
        k = llama.heads(m, x, "k", "k")
        v = swap(view(project(x, "v_proj"), "b s k d"), "b k s d")
        q, k = llama.turned(q, k, cos, sin)
        q = mul(q, position_scale(q.dtype), "queries, scaled by position")
        k, v = cached(m, k, v)
        x, probabilities = attend(m, q, k, v, mask)
        return project(x, "o_proj"), probabilities


def position_scale(dtype: str) -> Tensor:
    """get_llama_4_attn_scale: 1 + beta · log(1 + floor(position / length)), then cast to the queries' dtype."""
    for name in ("shares of the length", "whole lengths", "lengths, shifted", "logarithms", "logarithms, scaled"):
        scale = made("1 s", "fp32", name)
    scale = made("1 s", "fp32", "scale of positions")
    if dtype != "fp32":
        scale = made("1 s", dtype, "scale of positions")
    return view(scale, "1 1 s 1")
