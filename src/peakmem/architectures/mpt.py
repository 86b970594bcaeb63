"""MPT, as transformers 5.24 runs it (models/mpt/modeling_mpt.py): alibi, no biases, eager only."""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.definition import Definition, Layers, Row, embedding, layer_norm, linear, lm_head
from peakmem.estimate import weights
from peakmem.estimate.alibi import mpt_distances
from peakmem.estimate.attention import keys_as, matmul
from peakmem.estimate.inference import cached
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.masks import full_mask
from peakmem.estimate.ops import activation, add, cast, dropout, masked_fill, scale, softmax
from peakmem.estimate.shapes import contiguous, piece, reshape, split, swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, project

MIRRORS = "transformers 5.24.0 models/mpt/modeling_mpt.py"


def define(m: Structure) -> Definition:
    yield from embedding("transformer.wte", "V", "h")
    yield Layers("transformer.blocks", lambda kind: block_rows())
    yield from layer_norm("transformer.norm_f", bias=False)
    yield from lm_head(m)


def block_rows() -> Iterator[Row]:
    yield from layer_norm("norm_1", bias=False)
    yield from linear("attn.Wqkv", "(3 a d)", "h")
    yield from linear("attn.out_proj", "h", "(a d)")
    yield from layer_norm("norm_2", bias=False)
    yield from linear("ffn.up_proj", "f", "h")
    yield from linear("ffn.down_proj", "h", "f")


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: model(m, ids), "transformer.wte")


def model(m: Structure, ids: Tensor) -> Tensor:
    with scope("transformer"):
        x = inputs_embeds = embed(ids, "wte")
        alibi = mpt_distances(m)
        mask = cast(full_mask(m, x.dtype, packed=False), "bool")
        for _ in m.layers("blocks"):
            outputs = m.both(block, x, alibi, mask)
            x = outputs[0]
        x = weights.layer_norm(x, "norm_f")
        del inputs_embeds, outputs
        return x


def block(m: Structure, x: Tensor, alibi: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    normed = weights.layer_norm(x, "norm_1")
    residual = x
    attended, probabilities = attention(m, normed, alibi, mask)
    x = add(dropout(attended, m.drops("hidden")), residual)
    normed = weights.layer_norm(x, "norm_2")
    residual = x
    out = feed_forward(m, normed, residual)
    return out, probabilities


def attention(m: Structure, x: Tensor, alibi: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    with scope("attn"):
        mixed = project(x, "Wqkv")
        q, k, v = split(mixed, 2, [("a", "d")] * 3)
        q, k, v = (swap(reshape(part, "b s a d"), "b a s d") for part in (q, k, v))
        k, v = cached(m, k, v)
        k, v = keys_as(k), keys_as(v)
        scores = scale(matmul(q, swap(k, "b a d s'")), "scores, scaled")
        alibi = piece(alibi, 2, "s'")
        scores = add(scores, alibi, "scores and distances")
        scores = masked_fill(scores, mask, "scores, masked")
        probabilities = cast(softmax(cast(scores, "fp32")), v.dtype, "probabilities")
        probabilities = dropout(probabilities, m.drops("attention"))
        context = matmul(probabilities, v)
        context = view(contiguous(swap(context, "b s a d")), "b s (a d)")
        out = project(context, "out_proj")
        del mixed
        return out, probabilities


def feed_forward(m: Structure, x: Tensor, residual: Tensor) -> Tensor:
    with scope("ffn"):
        x = activation(project(x, "up_proj"), m.activation)
        out = project(x, "down_proj")
        result = dropout(out, m.drops("hidden"))
        result = add(result, residual)
        return result
