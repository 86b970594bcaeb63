"""torch.einsum of two tensors: permuted, joined to matrices, multiplied by batches, taken apart again.

Source: aten/src/ATen/native/Linear.cpp, einsum and sumproduct_pair (torch 2.13).
"""

from __future__ import annotations

from peakmem.estimate.attention import bmm
from peakmem.estimate.layout import Dims, dims, flat, is_one
from peakmem.estimate.ops import autocast
from peakmem.estimate.shapes import rename, reshape, swap, view
from peakmem.estimate.tape import Tensor, current


def einsum(x: Tensor, y: Tensor, target: str, other: str = "") -> Tensor:
    """A sum of products over the dimensions that both have and the target has not.

    Dimensions of both are the batch, those of one alone rows or columns; each group keeps the target's order. What
    its strides do not let be joined is copied. other: the second one's dimensions, where they go by other letters.
    """
    out, ones = dims(target), current().ones
    x, y = autocast(x), autocast(y)
    sides = (x, x.dims), (y, dims(other) if other else y.dims)
    left, right = (set(shape) for _, shape in sides)
    single = tuple(group for group in out if is_one(group, ones))
    wide = tuple(group for group in out if not is_one(group, ones))
    batch = tuple(group for group in wide if group in left and group in right)
    rows = tuple(group for group in wide if group not in right)
    columns = tuple(group for group in wide if group not in left)
    summed = tuple(group for group in x.dims if group in right and group not in out)
    if rows and columns and out.index(columns[-1]) < out.index(rows[0]):  # so that the result is contiguous
        sides, rows, columns = sides[::-1], columns, rows
    a = joined(*sides[0], single, batch, rows, summed)
    b = joined(*sides[1], single, batch, summed, columns)
    result = view(bmm(a, b), (*single, *batch, *rows, *columns))
    del a, b
    return swap(result, out)


def joined(x: Tensor, shape: Dims, single: Dims, *parts: Dims) -> Tensor:
    """permute, then reshape to three dimensions; dimensions of one element change nothing."""
    x = x if x.dims == shape else rename(x, shape)
    alone = tuple(group for group in single if group in shape)
    x = swap(x, (*alone, *(group for part in parts for group in part)))
    first, second, third = (flat(part) for part in parts)
    return reshape(x, (flat(single) + first, second, third))
