"""GPT-2, as transformers 5.24 runs it (models/gpt2/modeling_gpt2.py)."""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.definition import Definition, Layers, Row, conv1d, embedding, layer_norm, lm_head
from peakmem.estimate import weights
from peakmem.estimate.attention import attend
from peakmem.estimate.inference import cached
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.masks import causal_mask
from peakmem.estimate.ops import activation, add, dropout
from peakmem.estimate.positions import position_row
from peakmem.estimate.shapes import split, split_heads
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed

MIRRORS = "transformers 5.24.0 models/gpt2/modeling_gpt2.py"


def define(m: Structure) -> Definition:
    yield from embedding("transformer.wte", "V", "h")
    yield from embedding("transformer.wpe", "P", "h")
    yield Layers("transformer.h", lambda kind: block_rows())
    yield from layer_norm("transformer.ln_f")
    yield from lm_head(m)


def block_rows() -> Iterator[Row]:
    yield from layer_norm("ln_1")
    yield from conv1d("attn.c_attn", "(3 a d)", "h")
    yield from conv1d("attn.c_proj", "h", "(a d)")
    yield from layer_norm("ln_2")
    yield from conv1d("mlp.c_fc", "f", "h")
    yield from conv1d("mlp.c_proj", "h", "f")


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: model(m, ids), "transformer.wte")


def model(m: Structure, ids: Tensor) -> Tensor:
    with scope("transformer"):
        inputs_embeds = embed(ids, "wte")
        position_ids = position_row()
        position_embeds = embed(position_ids, "wpe", inputs=False)
        x = add(inputs_embeds, position_embeds)
        mask = causal_mask(m, inputs_embeds.dtype)
        x = dropout(x, m.drops("embedding"))
        for _ in m.layers("h"):
            x = m.layer(block, x, mask, position_ids)
        return weights.layer_norm(x, "ln_f")


def block(m: Structure, x: Tensor, mask: Tensor | None, position_ids: Tensor) -> Tensor:
    residual = x
    x = weights.layer_norm(x, "ln_1")
    attended, _ = attention(m, x, mask)
    x = add(attended, residual)
    residual = x
    x = weights.layer_norm(x, "ln_2")
    fed_forward = mlp(m, x)
    x = add(residual, fed_forward)
    return x


def attention(m: Structure, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    with scope("attn"):
        q, k, v = split(weights.conv1d(x, "c_attn"), 2, [("a", "d")] * 3)
        k, v = split_heads(k, "b a s d"), split_heads(v, "b a s d")
        q = split_heads(q, "b a s d")
        k, v = cached(m, k, v)
        out, probabilities = attend(m, q, k, v, mask, softmax_in="own, cast back")
        out = weights.conv1d(out, "c_proj")
        out = dropout(out, m.drops("hidden"))
        return out, probabilities


def mlp(m: Structure, x: Tensor) -> Tensor:
    with scope("mlp"):
        x = weights.conv1d(x, "c_fc")
        x = activation(x, m.activation)
        x = weights.conv1d(x, "c_proj")
        return dropout(x, m.drops("hidden"))
