"""Writing into a part of a tensor, and slices with a step."""

from __future__ import annotations

from peakmem.estimate.layout import GAP
from peakmem.estimate.node import Node
from peakmem.estimate.ops import result_like
from peakmem.estimate.tape import Tensor


def put(x: Tensor, at: int, part: Tensor) -> Tensor:
    """x[..., i:j].copy_(part) along one dimension: no memory in forward.

    Backward copies the whole gradient, clones the part's slice of it, and puts zeros there where x itself wants a
    gradient. Source: torch/csrc/autograd/functions/tensor.cpp, CopySlices and CopyBackwards.
    """
    n = Node("copy into slice", x, part)
    where = x.dims[:at] + part.dims[at:at + 1] + x.dims[at + 1:]
    if n.needs(0):
        n.gradient(0)
    else:
        n.works(x.dims, x.dtype)
    same = part.dtype == x.dtype
    if same and n.needs(1):
        n.gradient(1, dims=where)
    else:
        n.works(where, x.dtype)
    if n.needs(0):
        n.works(where, x.dtype)
    if not same:
        n.gradient(1, dims=where)
    return n.output(Tensor(x.dims, x.dtype, x.memory, x.storage, x.view))


def every_second(x: Tensor, part: str) -> Tensor:
    """x[..., 0::2] or x[..., 1::2]: a view with gaps. Backward makes a full tensor (SliceBackward0)."""
    last, *others = x.dims[-1]
    memory: list[str] = []
    for letter in x.memory:
        memory += [GAP, part, GAP] if letter == last else [] if letter in others else [letter]
    n = Node("slice", x)
    n.gradient(0)
    return n.output(x.seen_as(x.dims[:-1] + ((part,),), tuple(memory)))


def unbind(x: Tensor, at: int) -> list[Tensor]:
    """unbind(): a view for each element of a dimension, which goes. Backward stacks the gradients (UnbindBackward0)."""
    (count,) = x.dims[at]
    memory = tuple(GAP if letter == count else letter for letter in x.memory)
    n = Node("unbind", x)
    results = [n.output(x.seen_as(x.dims[:at] + x.dims[at + 1:], memory), slot) for slot in range(int(count))]
    n.gradient(0, "join")
    return results


def clamp(x: Tensor, bounds: int) -> Tensor:
    """clamp with one bound or two: keeps its input; where it lay outside, the gradient is zero (ClampBackward1)."""
    n = Node("clamp", x)
    n.saves(x, f"which elements {n.scope} clamped")
    out = result_like(n, x, None, "clamped")
    n.gradient(0, memory="grad", temporaries=(((), x.dtype), *((x.dims, "bool"),) * bounds))
    return n.output(out)


def kept_where(x: Tensor, name: str) -> Tensor:
    """where(a part of a buffer, x, number): elsewhere the gradient is zero (WhereBackward0)."""
    n = Node("where", x)
    out = result_like(n, x, None, name)
    n.gradient(0, memory="grad", temporaries=(((), x.dtype),))
    return n.output(out)
