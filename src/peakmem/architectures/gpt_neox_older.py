"""GPT-NeoX's attention as transformers 4.42 runs it: queries and keys are turned in fp32 and stay so.

The rotary tables are fp32 whatever the module's dtype, so their product with 16-bit queries is fp32, and joining it
to the part that is not turned makes all of it fp32. Eager scores are then fp32, too; the fused kernels get copies in
the module's dtype, while the cache holds the keys in fp32. Every layer has a triangle of truth values, the class's
2,048 positions square, and its own tables.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.definition import Row, buffer
from peakmem.estimate.attention import attend, bmm, keys_as, merged
from peakmem.estimate.layout import dims
from peakmem.estimate.node import Node
from peakmem.estimate.ops import cast, dropout, result_like, softmax
from peakmem.estimate.outputs import hand_out_cache
from peakmem.estimate.positions import made, part_and_rest, rotary_size, rotate
from peakmem.estimate.shapes import cat, piece, swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import project

MIRRORS = "transformers 4.42.4 models/gpt_neox/modeling_gpt_neox.py"
POSITIONS = "2048"  # GPTNeoXConfig.max_position_embeddings


def layer_buffers() -> Iterator[Row]:
    """GPTNeoXAttention.__init__ and its GPTNeoXRotaryEmbedding."""
    yield from buffer("attention.bias", f"{POSITIONS} {POSITIONS}'", "bool")
    yield from buffer("attention.masked_bias", "")
    yield from buffer("attention.rotary_emb.inv_freq", "u/2", "fp32")
    yield from buffer("attention.rotary_emb.cos_cached", f"{POSITIONS} u", "fp32")
    yield from buffer("attention.rotary_emb.sin_cached", f"{POSITIONS} u", "fp32")


def attention(m: Structure, x: Tensor) -> Tensor:
    with scope("attention"):
        q, k, v = projections_and_rope(m, x)
        hand_out_cache(m, k, v)
        if m.kernel("full") == "eager":
            out = scores(m, q, k, v)
        else:
            q, k = cast(q, v.dtype), cast(k, v.dtype)
            out, _ = attend(m, q, k, v, None)
        del q, k, v
        return project(out, "dense")


def projections_and_rope(m: Structure, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """_attn_projections_and_rope: three slices, and the tables' rows gathered for every layer."""
    qkv = view(project(x, "query_key_value"), "b s a (3 d)")
    q, k, v = (swap(piece(qkv, 3, "d"), "b a s d") for _ in range(3))
    part = rotary_size(m)
    q_part, q_rest = part_and_rest(q, part)
    k_part, k_rest = part_and_rest(k, part)
    cos, sin = made(f"1 s {part}", "fp32", "cosine rows"), made(f"1 s {part}", "fp32", "sine rows")
    q_turned = rotate(q_part, cos, sin, f"{part}/2")
    k_turned = rotate(k_part, cos, sin, f"{part}/2")
    q = cat([q_turned, q_rest], q.dims, "queries, rotated and rest")
    k = cat([k_turned, k_rest], k.dims, "keys, rotated and rest")
    return q, k, v


def scores(m: Structure, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """GPTNeoXAttention._attn: baddbmm onto zeros, where() with the triangle, softmax in the scores' own dtype."""
    k, values = keys_as(k), keys_as(v)
    b, a, s, d = q.dims
    keys = k.dims[2]
    q, k = view(q, (b + a, s, d)), view(k, (b + a, keys, d))
    zeros = made("(b a) s s'", q.dtype, "zeros for the scores")
    weights = bmm(q, swap(k, (b + a, d, keys)))
    del zeros
    weights = view(weights, (b, a, s, keys))
    weights = where(weights)
    weights = cast(softmax(weights), v.dtype, "probabilities")
    weights = dropout(weights, m.drops("attention"))
    out = view(bmm(view(weights, (b + a, s, keys)), joined_heads(values)), (b, a, s, d))
    return merged(out)


def joined_heads(values: Tensor) -> Tensor:
    """matmul's fold of batch and heads: a copy, for values lie token by token."""
    from peakmem.estimate.shapes import reshape

    b, a, s, d = values.dims
    return reshape(values, (b + a, s, d))


def where(x: Tensor) -> Tensor:
    """torch.where(triangle, scores, lowest): keeps the triangle, a view of the buffer."""
    lowest = made("", x.dtype, "lowest number")
    n = Node("where", x)
    out = result_like(n, x, None, "scores, masked")
    n.gradient(0, memory="grad", temporaries=((dims("()"), x.dtype),))
    del lowest
    return n.output(out)
