"""GPT-Neo, as transformers 5.24 runs it (models/gpt_neo/modeling_gpt_neo.py): eager attention in fp32.

Each layer has a mask of all positions as a buffer; where it is local, its window is in there.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures import starcoder2
from peakmem.architectures.definition import Definition, Layers, Row, buffer, embedding, layer_norm, linear, lm_head
from peakmem.estimate import weights
from peakmem.estimate.attention import keys_as, matmul, merged
from peakmem.estimate.inference import cached
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.masks import causal_mask
from peakmem.estimate.ops import add, cast, dropout, softmax
from peakmem.estimate.positions import made, position_row
from peakmem.estimate.shapes import split_heads, swap, view
from peakmem.estimate.slices import kept_where
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, project

MIRRORS = "transformers 5.24.0 models/gpt_neo/modeling_gpt_neo.py"


def define(m: Structure) -> Definition:
    yield from embedding("transformer.wte", "V", "h")
    yield from embedding("transformer.wpe", "P", "h")
    yield Layers("transformer.h", lambda kind: block_rows())
    yield from layer_norm("transformer.ln_f")
    yield from lm_head(m)


def block_rows() -> Iterator[Row]:
    yield from layer_norm("ln_1")
    yield from buffer("attn.attention.bias", "1 1 P P'", "bool")
    for part in ("k", "v", "q"):
        yield from linear(f"attn.attention.{part}_proj", "(a d)", "h")
    yield from linear("attn.attention.out_proj", "h", "(a d)", True)
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
        outputs = None
        for _ in m.layers("h"):
            outputs = m.both(block, x, mask)
            x = outputs[0]
        x = weights.layer_norm(x, "ln_f")
        x = view(x, x.dims)
        del outputs
        return x


def block(m: Structure, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    residual = x
    x = weights.layer_norm(x, "ln_1")
    attended, probabilities = attention(m, x, mask)
    x = add(attended, residual)
    residual = x
    x = weights.layer_norm(x, "ln_2")
    fed_forward = starcoder2.mlp(m, x)
    x = add(residual, fed_forward)
    return x, probabilities


def attention(m: Structure, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    with scope("attn.attention"):
        q, k, v = project(x, "q_proj"), project(x, "k_proj"), project(x, "v_proj")
        q, k, v = split_heads(q, "b a s d"), split_heads(k, "b a s d"), split_heads(v, "b a s d")
        k, v = cached(m, k, v)
        out, probabilities = attend(m, q, k, v, mask)
        out = merged(out)
        out = project(out, "out_proj")
        out = dropout(out, m.drops("hidden"))
        return out, probabilities


def attend(m: Structure, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """_attn: scores of queries and keys in fp32; what the layer's own mask hides is replaced."""
    query = cast(q, "fp32", "queries in fp32")
    keys, values = keys_as(cast(k, "fp32", "keys in fp32")), keys_as(v)
    b, a, t, d = keys.dims
    scores = matmul(query, swap(keys, (b, a, d, t)))
    lowest = made("", scores.dtype, "lowest number")
    scores = kept_where(scores, "scores, masked")
    if mask is not None:
        scores = add(scores, mask, "scores, masked twice")
    scores = softmax(scores)
    scores = cast(scores, v.dtype, "probabilities")
    scores = dropout(scores, m.drops("attention"))
    out = matmul(scores, values)
    del lowest
    return out, scores
