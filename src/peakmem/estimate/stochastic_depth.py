"""Stochastic depth: a sequence's whole block is left out, by a number drawn for each."""

from __future__ import annotations

from peakmem.estimate.layout import Dims
from peakmem.estimate.ops import mul, scale, shift
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, current


def drop_path(m: Structure, x: Tensor) -> Tensor:
    """transformers' XxxDropPath: x.div(keep) * floor(rand + keep), nothing where its probability is 0."""
    if not m.drops("path"):
        return x
    shape: Dims = x.dims[:1] + ((),) * (len(x.dims) - 1)
    drawn = current().new(shape, x.dtype, None, f"{current().scope}/a random number each")
    moved = shift(drawn)
    kept = current().new(shape, x.dtype, None, f"{current().scope}/which are kept")
    del drawn, moved
    return mul(scale(x), kept)
