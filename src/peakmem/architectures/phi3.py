"""Phi-3, as transformers 5.24 runs it (models/phi3/modeling_phi3.py): q, k, v from one matrix."""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures import llama
from peakmem.architectures.definition import Definition, Row, decoder, linear, rms_norm
from peakmem.estimate.attention import attend
from peakmem.estimate.inference import cached
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.ops import activation, dropout
from peakmem.estimate.positions import rotate_part
from peakmem.estimate.shapes import piece, split, swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import project, rms

MIRRORS = "transformers 5.24.0 models/phi3/modeling_phi3.py"


def define(m: Structure) -> Definition:
    yield from decoder(m, lambda kind: block_rows())


def block_rows() -> Iterator[Row]:
    yield from linear("self_attn.o_proj", "h", "(a d)")
    yield from linear("self_attn.qkv_proj", "a*d+2*k*d", "h")
    yield from linear("mlp.gate_up_proj", "(2 f)", "h")
    yield from linear("mlp.down_proj", "h", "f")
    yield from rms_norm("input_layernorm")
    yield from rms_norm("post_attention_layernorm")


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: llama.model(m, ids, block, m.kinds()), "model.embed_tokens")


def block(m: Structure, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None,
          position_ids: Tensor) -> Tensor:
    residual = x
    x = rms(x, "input_layernorm")
    x, probabilities = attention(m, x, cos, sin, mask)
    x = residual + dropout(x, m.drops("hidden"))
    residual = x
    x = rms(x, "post_attention_layernorm")
    x = mlp(m, x)
    x = residual + dropout(x, m.drops("hidden"))
    del probabilities
    return x


def attention(m: Structure, x: Tensor, cos: Tensor, sin: Tensor,
              mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    with scope("self_attn"):
        qkv = project(x, "qkv_proj")
        q, k, v = piece(qkv, 2, ("a", "d")), piece(qkv, 2, ("k", "d")), piece(qkv, 2, ("k", "d"))
        q = swap(view(q, "b s a d"), "b a s d")
        k = swap(view(k, "b s k d"), "b k s d")
        v = swap(view(v, "b s k d"), "b k s d")
        q, k = rotate_part(m, q, k, cos, sin)
        k, v = cached(m, k, v)
        x, probabilities = attend(m, q, k, v, mask)
        x = project(x, "o_proj")
        del qkv
        return x, probabilities


def mlp(m: Structure, x: Tensor) -> Tensor:
    with scope("mlp"):
        gate, up = split(project(x, "gate_up_proj"), 2, ["f", "f"])
        up = up * activation(gate, m.activation)
        x = project(up, "down_proj")
        del gate
        return x
