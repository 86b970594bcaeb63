"""Operations that write their result over an operand: no memory in forward, gradients like those of their twins."""

from __future__ import annotations

from peakmem.estimate.node import Node
from peakmem.estimate.ops import promote
from peakmem.estimate.tape import Tensor


def add_into(x: Tensor, y: Tensor) -> Tensor:
    """add_: both inputs get the incoming gradient itself."""
    n = Node("add", x, y)
    n.gradient(1, "pass")
    n.gradient(0, "pass")
    return n.output(Tensor(x.dims, x.dtype, x.memory, x.storage, x.view))


def scale_over(x: Tensor) -> Tensor:
    """mul_ or div_ by a Python number: nothing to keep."""
    n = Node("scale", x)
    n.gradient(0, memory="grad")
    return n.output(Tensor(x.dims, x.dtype, x.memory, x.storage, x.view))


def mul_over(x: Tensor, y: Tensor) -> Tensor:
    """x *= y, where y wants no gradient: it is kept for the gradient of x, a product of both dtypes first."""
    n = Node("mul", x)
    n.saves(y, f"gradient of {x.name}, its factor")
    n.gradient(0, dtype=promote(x, y), memory="grad")
    return n.output(Tensor(x.dims, x.dtype, x.memory, x.storage, x.view))
