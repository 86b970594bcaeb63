"""OPT's attention as transformers 4.46 runs it: every head's rows are copied together, and scores have a floor.

`_shape` ends in contiguous(), so queries, keys and values lie head by head, and so does what the kernel makes of
them, which is copied once more. Eager scores are compared with the dtype's lowest number: max() keeps both.
"""

from __future__ import annotations

from peakmem.estimate.attention import attend, bmm, keys_as, merged
from peakmem.estimate.node import Node
from peakmem.estimate.ops import add, cast, dropout, result_like, scale, softmax
from peakmem.estimate.outputs import hand_out_cache
from peakmem.estimate.positions import made
from peakmem.estimate.shapes import contiguous, split_heads, swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import project

MIRRORS = "transformers 4.46.3 models/opt/modeling_opt.py"


def attention(m: Structure, x: Tensor, mask: Tensor | None) -> Tensor:
    with scope("self_attn"):
        q = shape(scale(project(x, "q_proj"), "queries, scaled"), "queries by head")
        k, v = shape(project(x, "k_proj"), "keys by head"), shape(project(x, "v_proj"), "values by head")
        hand_out_cache(m, k, v)
        if m.kernel("full") == "eager":
            out = scores(m, q, k, v, mask)
        else:
            out, _ = attend(m, q, k, v, None)
        del q, k, v
        return project(out, "out_proj")


def shape(x: Tensor, name: str) -> Tensor:
    """OPTAttention._shape."""
    return contiguous(split_heads(x, "b a s d"), name)


def scores(m: Structure, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """OPTAttention.forward: two products over batch × heads, the mask added, the floor, softmax in fp32."""
    k, values = keys_as(k), keys_as(v)
    b, a, s, d = q.dims
    keys = k.dims[2]
    weights = bmm(view(q, (b + a, s, d)), swap(view(k, (b + a, keys, d)), (b + a, d, keys)))
    assert mask is not None, "eager code has a mask"
    weights = floor(add(view(weights, (b, a, s, keys)), mask, "scores, masked"))
    weights = view(weights, (b + a, s, keys))
    weights = cast(softmax(weights, "fp32"), q.dtype, "probabilities") if q.dtype == "fp16" else softmax(weights)
    kept = dropout(weights, m.drops("attention"))
    out = bmm(kept, view(values, (b + a, keys, d)))
    return merged(view(out, (b, a, s, d)))


def floor(x: Tensor) -> Tensor:
    """torch.max(scores, lowest): maximum keeps both to tell which was larger (derivatives.yaml)."""
    lowest = made("", x.dtype, "lowest number")
    n = Node("maximum", x)
    n.saves(x, f"where the scores of {n.scope} were above the lowest number")
    n.saves(lowest, f"where the scores of {n.scope} were above the lowest number")
    out = result_like(n, x, None, "scores, floored")
    n.gradient(0, memory="grad", temporaries=((x.dims, "bool"), (x.dims, x.dtype)))
    return n.output(out)
