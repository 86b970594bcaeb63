"""T5's relative positions: a bias on the scores, one number for each head and each bucket of distances.

The bias is trained, and all layers of a stack add the same tensor. Fused kernels take it as a mask that wants a
gradient. Shapes are (1, heads, queries, keys).
"""

from __future__ import annotations

from peakmem.estimate.attention import cudnn, efficient, keys_as, math, matmul
from peakmem.estimate.layout import is_one
from peakmem.estimate.node import Node
from peakmem.estimate.ops import add, autocast, dropout, scale, softmax
from peakmem.estimate.positions import made
from peakmem.estimate.shapes import contiguous, expand, piece, swap
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, current
from peakmem.estimate.weights import embed, leaf


def relative_bias(at: str, causal: bool) -> Tensor:
    """T5Attention.compute_bias: buckets of the distances of all pairs, then a table of biases."""
    queries = made(f"{at} 1", "int64", "query numbers")
    queries = made(f"{at} 1", "int64", "query numbers, moved")
    keys = made(f"{at}'", "int64", "key numbers")
    distances = made(f"{at} {at}'", "int64", "distances")
    numbers = buckets(f"{at} {at}'", causal)
    values = embed(numbers, "relative_attention_bias", inputs=False)
    del queries, keys, distances
    return swap(swap(values, f"a {at} {at}'"), f"1 a {at} {at}'")


def buckets(pairs: str, causal: bool) -> Tensor:
    """T5Attention._relative_position_bucket: small distances one by one, large ones by their logarithm."""
    if causal:
        zeros = made(pairs, "int64", "zeros")
        smaller = made(pairs, "int64", "distances back")
        del zeros
        distance = made(pairs, "int64", "distances, positive")
        del smaller
    else:
        ahead = made(pairs, "bool", "what is ahead")
        numbers = made(pairs, "int64", "what is ahead as numbers")
        del ahead
        numbers = made(pairs, "int64", "first bucket")
        numbers = made(pairs, "int64", "buckets")
        distance = made(pairs, "int64", "distances, positive")
    small = made(pairs, "bool", "small distances")
    large = made(pairs, "fp32", "distances in fp32")
    for name in ("ratios", "logarithms", "shares", "steps"):
        large = made(pairs, "fp32", name)
    large = made(pairs, "int64", "steps as numbers")
    large = made(pairs, "int64", "buckets of large distances")
    most = made(pairs, "int64", "last bucket")
    large = made(pairs, "int64", "buckets of large distances, limited")
    del most
    chosen = made(pairs, "int64", "chosen buckets")
    if causal:
        numbers = made(pairs, "int64", "buckets")
    del chosen, distance, small, large
    return numbers


def buckets_of_distances(pairs: str) -> Tensor:
    """MPNetEncoder.relative_position_bucket."""
    back = made(pairs, "int64", "distances, negated")
    ahead = made(pairs, "bool", "what is ahead")
    numbers = made(pairs, "int64", "what is ahead as numbers")
    del ahead
    numbers = made(pairs, "int64", "first bucket")
    numbers = made(pairs, "int64", "buckets")
    back = made(pairs, "int64", "distances, positive")
    small = made(pairs, "bool", "small distances")
    large = made(pairs, "fp32", "distances in fp32")
    for name in ("ratios", "logarithms", "shares", "steps"):
        large = made(pairs, "fp32", name)
    large = made(pairs, "int64", "steps as numbers")
    large = made(pairs, "int64", "buckets of large distances")
    most = made(pairs, "int64", "last bucket")
    large = made(pairs, "int64", "buckets of large distances, limited")
    del most
    chosen = made(pairs, "int64", "chosen buckets")
    del back, small, large, chosen
    return numbers


def zero_bias(m: Structure, q: Tensor, k: Tensor) -> Tensor:
    """No bias between two sequences: zeros, which want a gradient where the model is checkpointed."""
    zeros = current().new(((), *q.dims[1:3], k.dims[2]), q.dtype, None, f"{current().scope}/zero bias")
    return leaf(zeros) if m.checkpoint != "none" else zeros


def attend_biased(m: Structure, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, mask: Tensor | None, causal: bool,
                  kind: str) -> tuple[Tensor, Tensor | None]:
    """The attention of one layer, token by token, and the probabilities where they exist."""
    kernel, drop = m.kernel(kind if bias.needs_grad else "frozen bias"), m.drops("attention")
    if kernel == "eager":
        return eager(q, k, v, bias, mask, drop)
    numbers = bias_as_mask(bias, causal)
    out = fused(m, kernel, q, k, v, numbers, drop)
    b, a, s, d = out.dims
    out = contiguous(swap(out, (b, s, a, d)), "attention output, heads merged")
    del numbers
    return out, None


def fused(m: Structure, kernel: str, q: Tensor, k: Tensor, v: Tensor, numbers: Tensor, drop: bool) -> Tensor:
    """scaled_dot_product_attention with numbers for a mask, of which autocast makes a copy too."""
    q, k, v = autocast(q), autocast(k), autocast(v)
    numbers = autocast(numbers)
    if kernel == "math":
        return math(q, k, v, numbers, False, drop)
    if kernel == "cudnn":
        return cudnn(q, k, v, numbers)
    uneven = m.has({"s": "uneven_sequence", "t": "uneven_target"}[numbers.dims[3][0].rstrip("'")])
    return efficient(q, k, v, aligned(m, numbers), uneven)


def bias_as_mask(bias: Tensor, causal: bool) -> Tensor:
    """create_position_bias_mask of integrations/sdpa_attention.py: later keys get the lowest number."""
    if causal and not is_one(bias.dims[2], current().ones):  # a single query may look everywhere
        queries, keys = made("t", "int64", "query numbers"), made("t", "int64", "key numbers")
        earlier = made("1 1 t t'", "bool", "causal mask")
        del queries, keys
        bias = where_else(earlier, bias)
    return contiguous(bias, "bias, contiguous")


def where_else(condition: Tensor, x: Tensor) -> Tensor:
    """where(condition, x, number): keeps the condition; the number becomes a tensor, in backward a zero does.

    Source: derivatives.yaml, where.self; aten/src/ATen/native/TensorCompare.cpp.
    """
    n = Node("where", x)
    n.saves(condition, f"where {n.scope} took its input")
    number = made("", x.dtype, "number")
    out = n.makes(x.dims, x.dtype, x.memory, "chosen")
    del number
    n.gradient(0, temporaries=(((), x.dtype),))
    return n.output(out)


def aligned(m: Structure, mask: Tensor) -> Tensor:
    """pad_bias of attention.cpp: rows begin at multiples of 8 elements; then the mask is seen by every sequence."""
    keys = mask.dims[3][0].rstrip("'")
    if m.has({"s": "odd_sequence", "t": "odd_target"}[keys]):
        letter = f"{mask.dims[3][0] if current().single else keys}^8"
        n = Node("pad", mask)
        padded = n.makes((*mask.dims[:3], (letter,)), mask.dtype, None, "bias, padded")
        n.gradient(0)
        mask = piece(n.output(padded), 3, mask.dims[3])
    return expand(mask, (("b",), *mask.dims[1:]))


def eager(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, mask: Tensor | None, drop: bool) -> tuple[Tensor, Tensor]:
    """modeling_t5.py's eager_attention_forward: the scores times one, plus the bias, plus the mask."""
    keys, values = keys_as(k), keys_as(v)
    b, a, t, d = keys.dims
    weights = scale(matmul(q, swap(keys, (b, a, d, t))), "scores, scaled")
    weights = add(weights, bias, "scores and bias")
    if mask is not None:
        weights = add(weights, mask, "scores, masked")
    weights = softmax(weights)
    weights = dropout(weights, drop)
    out = matmul(weights, values)
    b, a, s, d = out.dims
    return contiguous(swap(out, (b, s, a, d)), "attention output, heads merged"), weights
