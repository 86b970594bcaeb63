"""Falcon's attention, and the linear layer that all of it uses."""

from __future__ import annotations

from peakmem.estimate.alibi import falcon_attention
from peakmem.estimate.attention import keys_as, masked, matmul
from peakmem.estimate.inference import cached
from peakmem.estimate.inplace import scale_over
from peakmem.estimate.ops import add, softmax
from peakmem.estimate.positions import made, rotate
from peakmem.estimate.shapes import expand, index, piece, regroup, reshape, select, swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import adapted, has, product, weight


def falcon_linear(x: Tensor, name: str) -> Tensor:
    """FalconLinear: `input @ weight.T`, then the bias is added."""
    with scope(name):
        return adapted(x, base=matmul_then_add) if has("base_layer.weight") else matmul_then_add(x)


def matmul_then_add(x: Tensor) -> Tensor:
    """The transposed weight is no leaf, so autocast makes its copy for every call."""
    w = weight("weight")
    y = product(x, swap(w, w.dims[::-1]), None, transposed=True)
    return add(y, weight("bias"), "with bias") if has("bias") else y


def attention(m: Structure, x: Tensor, alibi: Tensor | None, mask: Tensor,
              tables: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor | None]:
    with scope("self_attention"):
        fused = falcon_linear(x, "query_key_value")
        q, k, v = parts(m, fused)
        q, k, v = (reshape(swap(part, heads_first(part)), heads_first(part)) for part in (q, k, v))
        if alibi is None:
            q, k = rotate(q, *tables), rotate(k, *tables)
        k, v = cached(m, k, v)
        probabilities, others = None, []
        if m.kernel() != "eager":
            out = masked(m, m.kernel(), q, k, v, mask, alibi is not None and m.drops("attention"))
        elif alibi is None:
            out, probabilities = eager(q, k, v, mask, x.dtype)
        else:
            out, probabilities, *others = falcon_attention(m, q, k, v, alibi, mask, x.dtype)
        out = view(out, out.dims)
        out = reshape(swap(out, "b s a d"), "b s (a d)")
        out = falcon_linear(out, "dense")
        del fused, others
        return out, probabilities


def heads_first(x: Tensor) -> tuple[tuple[str, ...], ...]:
    b, s, a, d = x.dims
    return b, a, s, d


def parts(m: Structure, fused: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """_split_heads: queries, keys and values as (b, s, heads, d)."""
    if m.has("grouped_qkv"):
        return grouped_parts(fused)
    if m.has("broadcast_heads"):
        fused = view(fused, "b s a+2 d")
        return piece(fused, 2, "a"), picked(fused, 2, "b s k d"), picked(fused, 2, "b s k d")
    fused = view(fused, "b s a 3 d")
    return select(fused, 3), select(fused, 3), select(fused, 3)


def grouped_parts(fused: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Groups of queries with a key and a value each, which are repeated for every query of their group."""
    fused = view(fused, "b s k a/k+2 d")
    q, k, v = piece(fused, 3, "a/k"), picked(fused, 3, "b s k 1 d"), picked(fused, 3, "b s k 1 d")
    k = expand(k, q.dims)
    v = expand(v, q.dims)
    return flattened(q), flattened(k), flattened(v)


def flattened(x: Tensor) -> Tensor:
    """flatten(2, 3): the groups and the queries of each become heads."""
    return regroup(reshape(x, "b s (k a/k) d"), "b s a d")


def picked(x: Tensor, at: int, target: str) -> Tensor:
    """x[:, :, [-2]]: a list picks by numbers, which is a copy."""
    return index(x, made("1", "int64", "which row"), target)


def eager(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, dtype: str) -> tuple[Tensor, Tensor]:
    """Scores divided in place, a softmax in the dtype of the layer's input."""
    keys, values = keys_as(k), keys_as(v)
    b, a, t, d = keys.dims
    scores = matmul(q, swap(keys, (b, a, d, t)))
    scores = scale_over(scores)
    scores = softmax(add(scores, mask, "scores, masked"), dtype)
    return matmul(scores, values), scores
