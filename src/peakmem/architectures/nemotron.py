"""Nemotron and Minitron, as transformers 5.24 runs them (models/nemotron/modeling_nemotron.py).

Layer norms whose weights are one more than they are stored; half of each head turned; a feed-forward without a gate.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures import arcee, llama
from peakmem.architectures.definition import Definition, Row, attention_rows, decoder, layer_norm
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.norms import layer_norm_plus_one
from peakmem.estimate.positions import part_and_rest, rotary_size, rotate
from peakmem.estimate.shapes import cat
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor

MIRRORS = "transformers 5.24.0 models/nemotron/modeling_nemotron.py"


def define(m: Structure) -> Definition:
    yield from decoder(m, lambda kind: block_rows(m), layer_norm)


def block_rows(m: Structure) -> Iterator[Row]:
    yield from attention_rows(m.has("attention_bias"))
    yield from arcee.plain_rows(m.has("mlp_bias"))
    yield from layer_norm("input_layernorm")
    yield from layer_norm("post_attention_layernorm")


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: llama.model(m, ids, block, norm=layer_norm_plus_one), "model.embed_tokens")


def block(m: Structure, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None,
          position_ids: Tensor) -> Tensor:
    def turned(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        part = rotary_size(m)
        q_turned, q_rest = part_and_rest(q, part)
        k_turned, k_rest = part_and_rest(k, part)
        q_turned = rotate(q_turned, cos, sin, f"{part}/2")
        k_turned = rotate(k_turned, cos, sin, f"{part}/2")
        return (cat([q_turned, q_rest], q.dims, "rotated and rest"),
                cat([k_turned, k_rest], k.dims, "rotated and rest"))

    return llama.pre_norm(x, lambda x: llama.attention(m, x, cos, sin, mask, turned), lambda x: arcee.mlp(m, x),
                          layer_norm_plus_one)
