"""Granite, as transformers 5.24 runs it (models/granite/modeling_granite.py): Llama with four multipliers.

Each multiplication makes a tensor, also by 1.0; none keeps one.
"""

from __future__ import annotations

from collections.abc import Callable

from peakmem.architectures import llama
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.masks import causal_mask
from peakmem.estimate.ops import scale
from peakmem.estimate.positions import positions, rotary
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, rms

MIRRORS = "transformers 5.24.0 models/granite/modeling_granite.py"

FeedForward = Callable[[Structure, Tensor], Tensor]

define = llama.define


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: model(m, ids), "model.embed_tokens")


def model(m: Structure, ids: Tensor, feed_forward: FeedForward = llama.mlp) -> Tensor:
    """The decoder. Granite's mixtures make positions and mask before they scale the embeddings."""
    with scope("model"):
        inputs_embeds = embed(ids, "embed_tokens")
        if not m.has("experts"):
            x = inputs_embeds = scale(inputs_embeds, "embeddings, scaled")
        position_ids = positions()
        mask = causal_mask(m, inputs_embeds.dtype)
        if m.has("experts"):
            x = inputs_embeds = scale(inputs_embeds, "embeddings, scaled")
        cos, sin = rotary(m, x.dtype)
        for _ in m.layers("layers"):
            x = m.layer(block, x, cos, sin, mask, position_ids, feed_forward)
        x = rms(x, "norm")
        del inputs_embeds
        return x


def block(m: Structure, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None,
          position_ids: Tensor, feed_forward: FeedForward) -> Tensor:
    residual = x
    x = rms(x, "input_layernorm")
    x, probabilities = llama.attention(m, x, cos, sin, mask)
    x = residual + scale(x)
    residual = x
    x = rms(x, "post_attention_layernorm")
    x = feed_forward(m, x)
    x = residual + scale(x)
    del probabilities
    return x
