"""ALiBi: distances between tokens, times a slope for each head, added to the scores.

The letter A is the largest power of two that is not above the number of heads; other heads get slopes between its.
"""

from __future__ import annotations

from peakmem.estimate.attention import keys_as, matmul
from peakmem.estimate.inference import see
from peakmem.estimate.inplace import scale_over
from peakmem.estimate.layout import dims, flat
from peakmem.estimate.node import Node
from peakmem.estimate.ops import add, autocast, cast, dropout, softmax
from peakmem.estimate.positions import made
from peakmem.estimate.shapes import swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor


def head_slopes(m: Structure) -> tuple[Tensor, ...]:
    """base ** (1, 2, 3, …), and where heads are no power of two, some of the slopes of twice as many heads.

    First the slopes, then what they were made from, which lives as long as the function that makes them.
    """
    base = made("", "fp32", "base")
    powers = made("A", "int32", "powers")
    slopes = made("A", "fp32", "slopes")
    if not m.has("uneven_heads"):
        return slopes, base, powers
    extra_base = made("", "fp32", "base of the other heads")
    extra_powers = made("a-A", "int32", "powers of the other heads")
    others = made("a-A", "fp32", "slopes of the other heads")
    slopes = made("a", "fp32", "slopes")
    del others
    return slopes, base, powers, extra_base, extra_powers


def falcon_distances(m: Structure, dtype: str) -> tuple[Tensor, Tensor]:
    """build_alibi_tensor of modeling_falcon.py, (b·a, 1, s) in bf16 first; and the mask of ones it was made from."""
    see("full")
    ones = made("b s'", "int64", "attention mask of ones")
    slopes = head_slopes(m)
    counted = made("b s'", "int64", "tokens so far")
    counted = made("b s'", "int64", "positions")
    counted = made("b s'", "int64", "positions, masked")
    rounded = made("a", "bf16", "slopes in bf16")
    alibi = made("(b a) 1 s'", "bf16", "distances")
    del rounded
    alibi = cast(alibi, dtype)
    del slopes, counted
    return alibi, ones


def falcon_mask(m: Structure, alibi: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """FalconModel.forward: the distances, scaled, with the lowest number where a token must not look.

    A mask for each head, (b, a, s, s), in the dtype of the embeddings.
    """
    alibi = alibi.seen_as(dims("b a 1 s'"))
    scaled = made("b a 1 s'", alibi.dtype, "distances, scaled")
    hidden = made("b 1 s s'", "bool", "what is masked")
    mask = made("b a s s'", alibi.dtype, "distances and causal mask")
    del scaled, hidden
    return alibi, mask


def falcon_attention(m: Structure, q: Tensor, k: Tensor, v: Tensor, alibi: Tensor, mask: Tensor,
                     dtype: str) -> tuple[Tensor, ...]:
    """FalconAttention.forward, eager with alibi: scores in fp32, the softmax in the dtype of the layer's input.

    First the output, then the probabilities, then what else lives until the layer's attention returns.
    """
    keys, values = keys_as(k), keys_as(v)
    b, a, t, d = keys.dims
    result = matmul(q, swap(keys, (b, a, d, t)))
    scores = view(result, result.dims)
    if scores.dtype in ("bf16", "fp16"):
        scores = cast(scores, "fp32", "scores in fp32")
    logits = add(scores, alibi, "scores and distances")
    logits = scale_over(logits)
    probabilities = softmax(add(logits, mask, "scores, masked"), dtype)
    probabilities = dropout(probabilities, m.drops("attention"))
    out = matmul(view(probabilities, probabilities.dims), values)
    return out, probabilities, result, scores, logits


def bloom_distances(m: Structure, dtype: str) -> tuple[Tensor, Tensor]:
    """BloomModel.forward: distances (b·a, 1, s), made from the number of keys alone; and the slopes, which stay."""
    slopes = head_slopes(m)[0]
    see("full")
    numbers = made("s'", "int64", "key numbers")
    alibi = made("a 1 s'", "fp32", "distances of one sequence")
    del numbers
    alibi = cast(made("(b a) 1 s'", "fp32", "distances"), dtype)
    return alibi, slopes


def distances_and_scores(alibi: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """baddbmm: alibi + q·k·factor in one kernel. Each gradient is made, then multiplied by the factor."""
    k = autocast(k)
    q = autocast(q)
    alibi = autocast(alibi)
    n = Node("baddbmm", q, k)
    if n.needs(1):
        n.saves(q, f"gradient of the keys in {n.scope}")
    if n.needs(0):
        n.saves(k, f"gradient of the queries in {n.scope}")
    out = n.makes(q.dims[:2] + k.dims[2:], q.dtype, None, "scores and distances")
    n.flops(2, (*flat(out.dims), *q.dims[2]))
    n.gradient(0, temporaries=((q.dims, q.dtype),))
    n.gradient(1, temporaries=((k.dims, k.dtype),))
    return n.output(out)


def mpt_distances(m: Structure) -> Tensor:
    """build_mpt_alibi_tensor: (a, 1, P) in fp32, for all positions that the model has."""
    heads = "2*A" if m.has("uneven_heads") else "a"
    alibi = made("P", "int32", "distances")
    base = made(heads, "int64", "head numbers")
    base = made(heads, "fp32", "head numbers in fp32")
    base = made(heads, "fp32", "exponents")
    powers = made(heads, "fp32", "powers")
    reciprocals = made(heads, "fp32", "reciprocals")  # 1.0 / x is x.reciprocal() * 1.0
    slopes = made(heads, "fp32", "slopes")
    del powers, reciprocals
    if m.has("uneven_heads"):
        slopes = made(heads, "fp32", "slopes in another order")
    alibi = made("a 1 P", "fp32", "distances times slopes")
    del base, slopes
    return alibi
