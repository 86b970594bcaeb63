"""GPT as Korthikanti et al. count it (arXiv:2205.05198, section 4): 16 bits, fused LayerNorm and GeLU.

Scale, mask and softmax are one kernel, and the two numbers per token of a LayerNorm are left out. Then a layer
keeps s·b·h·(34 + 5·a·s/h) bytes (equation 1); 34·s·b·h where the attention core is computed again, which is
the paper's selective recomputation (section 5); 2·s·b·h where the whole layer is.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.definition import Definition, Layers, Row, embedding, layer_norm, linear
from peakmem.estimate import weights
from peakmem.estimate.attention import flash, keys_as, matmul
from peakmem.estimate.losses import cross_entropy, tied_to, total
from peakmem.estimate.ops import activation, add, cast, dropout, softmax
from peakmem.estimate.positions import position_row
from peakmem.estimate.recompute import checkpointed
from peakmem.estimate.shapes import contiguous, split, swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, current, scope
from peakmem.estimate.weights import embed, project

MIRRORS = "arXiv:2205.05198, figure 2"
INPUTS = {"input_ids": ("b s", "int64"), "labels": ("b s", "int64")}
LOSSES = ("upcast", "sum")
RUNS = ("training",)


def define(m: Structure) -> Definition:
    yield from embedding("embedding.word_embeddings", "V", "h")
    yield from embedding("embedding.position_embeddings", "P", "h")
    yield Layers("layers", lambda kind: block_rows())
    yield from layer_norm("final_layernorm")
    if not m.has("tied"):
        yield from linear("output_layer", "V", "h")


def block_rows() -> Iterator[Row]:
    yield from layer_norm("input_layernorm")
    yield from linear("self_attention.query_key_value", "(a 3 d)", "h", True)
    yield from linear("self_attention.dense", "h", "(a d)", True)
    yield from layer_norm("post_attention_layernorm")
    yield from linear("mlp.dense_h_to_4h", "f", "h", True)
    yield from linear("mlp.dense_4h_to_h", "h", "f", True)


def forward(m: Structure, input_ids: Tensor, labels: Tensor | None = None) -> Tensor:
    x = embeddings(m, input_ids)
    for _ in m.layers("layers"):
        x = m.layer(block, x) if m.checkpoint == "full" else block(m, x)
    x = weights.layer_norm(x, "final_layernorm", statistics=False)
    logits = project(x, "output_layer", tied_to(m, "embedding.word_embeddings"))
    if labels is None:
        return total(logits)
    logits = cast(logits, "fp32", "logits in fp32")
    with scope("loss"):
        return cross_entropy(view(logits, "(s b) V"), labels)


def embeddings(m: Structure, ids: Tensor) -> Tensor:
    """Tokens come first in memory from here on: (s, b, h)."""
    with scope("embedding"):
        words = embed(ids, "word_embeddings")
        x = add(words, embed(position_row(), "position_embeddings", inputs=False))
        x = contiguous(swap(x, "s b h"), "embeddings, tokens first")
        return dropout(x, m.drops("embedding"))


def block(m: Structure, x: Tensor) -> Tensor:
    residual = x
    x = weights.layer_norm(x, "input_layernorm", statistics=False)
    x = add(residual, dropout(attention(m, x), m.drops("hidden")))
    residual = x
    x = weights.layer_norm(x, "post_attention_layernorm", statistics=False)
    return add(residual, dropout(mlp(x), m.drops("hidden")))


def attention(m: Structure, x: Tensor) -> Tensor:
    with scope("self_attention"):
        qkv = view(project(x, "query_key_value"), "s b a (3 d)")
        q, k, v = split(qkv, 3, ["d", "d", "d"])
        if m.checkpoint == "selective":
            context = checkpointed(current(), core, (m, q, k, v), m.early_stop)
        else:
            context = core(m, q, k, v)
        return project(context, "dense")


def core(m: Structure, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """From queries, keys and values to the context: what selective recomputation computes again."""
    q, k, v = swap(q, "b a s d"), swap(k, "b a s d"), swap(v, "b a s d")
    if m.kernel() == "flash":
        context = flash(q, k, v)
    else:
        keys, values = keys_as(k), keys_as(v)
        scores = matmul(q, swap(keys, "b a d s'"))
        probabilities = dropout(softmax(scores, scores.dtype), m.drops("attention"))
        context = matmul(probabilities, values)
    return view(contiguous(swap(context, "s b a d"), "context, heads merged"), "s b (a d)")


def mlp(x: Tensor) -> Tensor:
    with scope("mlp"):
        return project(activation(project(x, "dense_h_to_4h"), "gelu"), "dense_4h_to_h")
