"""Granite, as transformers 5.24 runs it (models/granite/modeling_granite.py): Llama with four multipliers.

Each multiplication makes a tensor, also by 1.0; none keeps one.
"""

from __future__ import annotations

from peakmem.architectures import llama
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.masks import causal_mask
from peakmem.estimate.ops import scale
from peakmem.estimate.positions import positions, rotary
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, rms

MIRRORS = "transformers 5.24.0 models/granite/modeling_granite.py"

define = llama.define


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: model(m, ids), "model.embed_tokens")


def model(m: Structure, ids: Tensor) -> Tensor:
    with scope("model"):
        inputs_embeds = embed(ids, "embed_tokens")
        x = inputs_embeds = scale(inputs_embeds, "embeddings, scaled")
        position_ids = positions()
        mask = causal_mask(m, x.dtype)
        cos, sin = rotary(m, x.dtype)
        for _ in m.layers("layers"):
            x = m.layer(block, x, cos, sin, mask, position_ids)
        x = rms(x, "norm")
        del inputs_embeds
        return x


def block(m: Structure, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None,
          position_ids: Tensor) -> Tensor:
    residual = x
    x = rms(x, "input_layernorm")
    x, probabilities = llama.attention(m, x, cos, sin, mask)
    x = residual + scale(x)
    residual = x
    x = rms(x, "post_attention_layernorm")
    x = llama.mlp(m, x)
    x = residual + scale(x)
    del probabilities
    return x
