"""Seed-OSS, as transformers 5.24 runs it (models/seed_oss/modeling_seed_oss.py): Llama with dropout in each branch."""

from __future__ import annotations

from peakmem.architectures import llama
from peakmem.estimate.attention import attend
from peakmem.estimate.inference import cached
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.ops import activation, dropout
from peakmem.estimate.positions import rotate
from peakmem.estimate.shapes import swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import project

MIRRORS = "transformers 5.24.0 models/seed_oss/modeling_seed_oss.py"

define = llama.define


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: llama.model(m, ids, block), "model.embed_tokens")


def block(m: Structure, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None,
          position_ids: Tensor) -> Tensor:
    return llama.pre_norm(x, lambda x: attention(m, x, cos, sin, mask), lambda x: mlp(m, x))


def attention(m: Structure, x: Tensor, cos: Tensor, sin: Tensor,
              mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    with scope("self_attn"):
        q = llama.heads(m, x, "q", "a")
        k = llama.heads(m, x, "k", "k")
        v = swap(view(project(x, "v_proj"), "b s k d"), "b k s d")
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = cached(m, k, v)
        x, probabilities = attend(m, q, k, v, mask)
        x = project(x, "o_proj")
        x = dropout(x, m.drops("hidden"))
        return x, probabilities


def mlp(m: Structure, x: Tensor) -> Tensor:
    with scope("mlp"):
        down = project(activation(project(x, "gate_proj"), m.activation) * project(x, "up_proj"), "down_proj")
        down = dropout(down, m.drops("hidden"))
        return down
