"""How the features of pictures take the places of tokens that stand for them."""

from __future__ import annotations

from peakmem.estimate.layout import flat
from peakmem.estimate.node import Node
from peakmem.estimate.positions import made
from peakmem.estimate.tape import Tensor, current


def rows_joined(x: Tensor) -> Tensor:
    """torch.cat(list(x)): one view for each picture, joined again. Backward takes slices, and stacks them.

    UnbindBackward0, CatBackward0.
    """
    n = Node("unbind", x)
    n.gradient(0)
    x = n.output(x.seen_as(x.dims))
    n = Node("cat", x)
    out = n.makes((x.dims[0] + x.dims[1], *x.dims[2:]), x.dtype, None, "features of all pictures")
    n.gradient(0, "reshape")
    return n.output(out)


def placeholders(shape: str) -> Tensor:
    """get_placeholder_mask: where the tokens of pictures are, and whether they are as many as the features."""
    mask = made(shape, "bool", "places of pictures")
    count = made("", "int64", "tokens of pictures")
    wanted = made("", "int64", "numbers of features that they take")
    equal = made("", "bool", "as many")
    del wanted
    every = made("", "bool", "all of them")
    del count, equal, every
    return mask


def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """masked_scatter: a copy of x, part of it overwritten; backward needs the places (MaskedScatterBackward0).

    The kernel counts for every element those that are overwritten before it; backward lists three numbers of each.
    Source: aten/src/ATen/native/cuda/IndexKernel.cpp, masked_scatter__cuda and masked_select_out_cuda_impl.
    """
    n = Node("masked_scatter", x, source)
    n.saves(mask, f"which elements {n.scope} overwrote")
    n.needs_scratch((24, flat(source.dims)), "places of what was overwritten")
    out = n.makes(x.dims, x.dtype, None, "embeddings with features of pictures")
    scratch = [current().new(x.dims, dtype, None, f"{n.scope}/{name}", None, True)
               for dtype, name in (("int64", "elements overwritten before"), ("bool", "places, for every element"))]
    del scratch
    n.gradient(0)
    n.gradient(1)
    return n.output(out)
