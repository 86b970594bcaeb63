"""Nemotron-NAS as Llama of transformers 5.24 (models/llama/modeling_llama.py), which its own code follows.

Each layer has its own number of key/value heads and its own feed-forward, or lacks one of them together with its norm.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures import llama
from peakmem.architectures.definition import Definition, Row, decoder, linear, rms_norm
from peakmem.estimate.attention import attend
from peakmem.estimate.inference import cached
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.masks import causal_mask
from peakmem.estimate.positions import positions, rotary, rotate
from peakmem.estimate.shapes import split_heads
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, project, rms
from peakmem.immutable import replace

MIRRORS = "transformers 5.24.0 models/llama/modeling_llama.py, in the sizes of modeling_decilm.py"
NONE = "none"


def define(m: Structure) -> Definition:
    yield from decoder(m, lambda kind: block_rows(m, kind))


def block_rows(m: Structure, kind: str) -> Iterator[Row]:
    k, f = kind.split()
    if k != NONE:
        biased = m.has("attention_bias")
        for part, heads in (("q", "a"), ("k", k), ("v", k)):
            yield from linear(f"self_attn.{part}_proj", f"({heads} d)", "h", biased)
        yield from linear("self_attn.o_proj", "h", "(a d)", biased)
    if f != NONE:
        for part, outputs, inputs in (("gate_proj", f, "h"), ("up_proj", f, "h"), ("down_proj", "h", f)):
            yield from linear(f"mlp.{part}", outputs, inputs, m.has("mlp_bias"))
    if k != NONE:
        yield from rms_norm("input_layernorm")
    if f != NONE:
        yield from rms_norm("post_attention_layernorm")


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: model(m, ids), "model.embed_tokens")


def model(m: Structure, ids: Tensor) -> Tensor:
    with scope("model"):
        x = inputs_embeds = embed(ids, "embed_tokens")
        position_ids = positions()
        mask = causal_mask(m, x.dtype)
        cos, sin = rotary(m, x.dtype)
        for kind in m.layers("layers"):
            x = m.layer(block, x, cos, sin, mask, position_ids, kind)
        x = rms(x, "norm")
        del inputs_embeds
        return x


def block(m: Structure, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None, position_ids: Tensor,
          kind: str) -> Tensor:
    k, f = kind.split()
    probabilities = None
    if k != NONE:
        residual = x
        x = rms(x, "input_layernorm")
        x, probabilities = attention(m, x, cos, sin, mask, k)
        x = residual + x
    if f != NONE:
        residual = x
        x = rms(x, "post_attention_layernorm")
        x = llama.mlp(m, x)
        x = residual + x
    del probabilities
    return x


def attention(m: Structure, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None,
              k_heads: str) -> tuple[Tensor, Tensor | None]:
    with scope("self_attn"):
        q = split_heads(project(x, "q_proj"), "b a s d")
        k = split_heads(project(x, "k_proj"), f"b {k_heads} s d")
        v = split_heads(project(x, "v_proj"), f"b {k_heads} s d")
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = cached(m, k, v)
        x, probabilities = attend(of_layer(m, k_heads), q, k, v, mask)
        return project(x, "o_proj"), probabilities


def of_layer(m: Structure, k_heads: str) -> Structure:
    """The run as a layer sees it: one in which every head has its own keys repeats none."""
    if not m.has(f"whole_{k_heads}"):
        return m
    return replace(m, switches=m.switches - {"grouped_heads"})
