"""Apertus, as transformers 5.24 runs it (models/apertus/modeling_apertus.py): Llama with norms on queries and keys, and
xIELU without a gate."""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures import llama
from peakmem.architectures.definition import Definition, Row, attention_rows, buffer, decoder, linear, rms_norm
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.ops import activation
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import project, rms
from peakmem.estimate.xielu import xielu

MIRRORS = "transformers 5.24.0 models/apertus/modeling_apertus.py"


def define(m: Structure) -> Definition:
    yield from decoder(m, lambda kind: block_rows(m))


def block_rows(m: Structure) -> Iterator[Row]:
    yield from attention_rows(m.has("attention_bias"))
    yield from rms_norm("self_attn.q_norm", "d")
    yield from rms_norm("self_attn.k_norm", "d")
    yield from linear("mlp.up_proj", "f", "h")
    yield from linear("mlp.down_proj", "h", "f")
    if m.activation == "xielu":
        yield Row("mlp.act_fn.alpha_p", "1")
        yield Row("mlp.act_fn.alpha_n", "1")
        yield from buffer("mlp.act_fn.beta", "()")
        yield from buffer("mlp.act_fn.eps", "()")
    yield from rms_norm("attention_layernorm")
    yield from rms_norm("feedforward_layernorm")


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: llama.model(m, ids, block), "model.embed_tokens")


def block(m: Structure, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None,
          position_ids: Tensor) -> Tensor:
    residual = x
    x = rms(x, "attention_layernorm")
    x, probabilities = llama.attention(m, x, cos, sin, mask)
    x = residual + x
    residual = x
    x = rms(x, "feedforward_layernorm")
    x = mlp(m, x)
    x = residual + x
    del probabilities
    return x


def mlp(m: Structure, x: Tensor) -> Tensor:
    with scope("mlp"):
        x = project(x, "up_proj")
        x = xielu(m, x, "act_fn") if m.activation == "xielu" else activation(x, m.activation)
        return project(x, "down_proj")
