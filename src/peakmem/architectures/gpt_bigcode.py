"""GPT-BigCode, as transformers 5.24 runs it (models/gpt_bigcode/modeling_gpt_bigcode.py): GPT-2 with one KV head."""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.definition import Definition, Layers, Row, buffer, embedding, layer_norm, linear, lm_head
from peakmem.estimate import weights
from peakmem.estimate.attention import attend
from peakmem.estimate.inference import cached
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.masks import causal_mask
from peakmem.estimate.ops import activation, add, dropout
from peakmem.estimate.positions import position_row
from peakmem.estimate.shapes import split, swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, project

MIRRORS = "transformers 5.24.0 models/gpt_bigcode/modeling_gpt_bigcode.py"


def define(m: Structure) -> Definition:
    yield from embedding("transformer.wte", "V", "h")
    yield from embedding("transformer.wpe", "P", "h")
    yield Layers("transformer.h", lambda kind: block_rows(m))
    yield from layer_norm("transformer.ln_f")
    yield from buffer("transformer.bias", "P P", "bool")
    yield from lm_head(m)


def block_rows(m: Structure) -> Iterator[Row]:
    yield from layer_norm("ln_1")
    yield from linear("attn.c_attn", "(a+2 d)" if m.has("grouped_heads") else "(a 3 d)", "h", True)
    yield from linear("attn.c_proj", "h", "(a d)", True)
    yield from layer_norm("ln_2")
    yield from linear("mlp.c_fc", "f", "h", True)
    yield from linear("mlp.c_proj", "h", "f", True)


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: model(m, ids), "transformer.wte")


def model(m: Structure, ids: Tensor) -> Tensor:
    with scope("transformer"):
        inputs_embeds = embed(ids, "wte")
        position_ids = position_row()
        mask = causal_mask(m, inputs_embeds.dtype)
        position_embeds = embed(position_ids, "wpe", inputs=False)
        x = add(inputs_embeds, position_embeds)
        x = dropout(x, m.drops("embedding"))
        for _ in m.layers("h"):
            x = m.layer(block, x, mask)
        x = weights.layer_norm(x, "ln_f")
        return view(x, x.dims)


def block(m: Structure, x: Tensor, mask: Tensor | None) -> Tensor:
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
        if m.has("grouped_heads"):
            fused = view(project(x, "c_attn"), "b 1 s (a+2 d)")
            q, k, v = split(fused, 3, [("a", "d"), "d", "d"])
            q = swap(view(q, "b s a d"), "b a s d")
            k, v = view(k, "b k s d"), view(v, "b k s d")
        else:
            fused = swap(view(project(x, "c_attn"), "b s a (3 d)"), "b a s (3 d)")
            q, k, v = split(fused, 3, ["d", "d", "d"])
        del fused
        k, v = cached(m, k, v)
        out, probabilities = attend(m, q, k, v, mask)
        out = project(out, "c_proj")
        out = dropout(out, m.drops("hidden"))
        return out, probabilities


def mlp(m: Structure, x: Tensor) -> Tensor:
    with scope("mlp"):
        x = project(x, "c_fc")
        x = activation(x, m.activation)
        x = project(x, "c_proj")
        return dropout(x, m.drops("hidden"))
