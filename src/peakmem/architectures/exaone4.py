"""EXAONE 4, as transformers 5.24 runs it (models/exaone4/modeling_exaone4.py): norms behind each branch.

Where some layers slide, full ones do not turn queries and keys.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures import llama
from peakmem.architectures.definition import Definition, Row, attention_rows, decoder, gated_rows, rms_norm
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.masks import layer_masks
from peakmem.estimate.positions import positions, rotary
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, rms

MIRRORS = "transformers 5.24.0 models/exaone4/modeling_exaone4.py"


def define(m: Structure) -> Definition:
    yield from decoder(m, lambda kind: block_rows())


def block_rows() -> Iterator[Row]:
    yield from attention_rows()
    yield from rms_norm("self_attn.q_norm", "d")
    yield from rms_norm("self_attn.k_norm", "d")
    yield from gated_rows()
    yield from rms_norm("post_attention_layernorm")
    yield from rms_norm("post_feedforward_layernorm")


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: model(m, ids), "model.embed_tokens")


def model(m: Structure, ids: Tensor) -> Tensor:
    with scope("model"):
        x = inputs_embeds = embed(ids, "embed_tokens")
        position_ids = positions()
        slides = "sliding" in m.kinds()
        masks = layer_masks(m, x.dtype, ("full", "sliding") if slides else ("full",))
        cos, sin = rotary(m, x.dtype)
        for kind in m.layers("layers"):
            turns = kind == "sliding" or not m.has("unturned_full")
            x = m.layer(block, x, masks[kind], position_ids, cos, sin, turns)
        x = rms(x, "norm")
        del inputs_embeds
        return x


def block(m: Structure, x: Tensor, mask: Tensor | None, position_ids: Tensor, cos: Tensor, sin: Tensor,
          turns: bool) -> Tensor:
    residual = x
    x, probabilities = llama.attention(m, x, cos, sin, mask, llama.turned if turns else None)
    x = rms(x, "post_attention_layernorm")
    x = residual + x
    residual = x
    x = llama.mlp(m, x)
    x = rms(x, "post_feedforward_layernorm")
    x = residual + x
    del probabilities
    return x
