"""What transformers does to hidden states in fp16, so that none of them is infinite."""

from __future__ import annotations

from peakmem.estimate.node import Node
from peakmem.estimate.ops import neg, result_like
from peakmem.estimate.positions import made
from peakmem.estimate.tape import Tensor, current


def clamp(x: Tensor, least: Tensor | None = None, most: Tensor | None = None) -> Tensor:
    """clamp between two numbers, or two tensors: keeps its input; backward asks twice where it was inside.

    Source: derivatives.yaml, clamp and clamp.Tensor; torch/csrc/autograd/FunctionsManual.cpp, clamp_backward.
    """
    n = Node("clamp", x)
    n.saves(x, f"where {n.scope} was inside its limits")
    for limit in (least, most):
        if limit is not None:
            n.saves(limit, f"a limit of {n.scope}")
    out = result_like(n, x, None, "clamped")
    conditions = 2 if least is None else 3
    n.gradient(0, memory="grad", temporaries=(((), x.dtype), *((x.dims, "bool"),) * conditions))
    return n.output(out)


def largest_allowed(x: Tensor) -> Tensor:
    """torch.where(torch.isinf(x).any(), largest - 1000, largest)."""
    infinite = current().new(x.dims, "bool", None, f"{current().scope}/what is infinite")
    some = made("", "bool", "whether any is infinite")
    del infinite
    lower, upper = made("", "fp32", "a lower limit"), made("", "fp32", "the largest number")
    limit = made("", "fp32", "limit")
    del lower, upper, some
    return limit


def within(x: Tensor, limit: Tensor) -> Tensor:
    """torch.clamp(x, min=-limit, max=limit)."""
    return clamp(x, neg(limit), limit)


def all_finite(x: Tensor) -> None:
    """torch.isfinite(x).all(): (x == x) * (x.abs() != inf), which says that nothing is to be clamped.

    Source: aten/src/ATen/native/TensorCompare.cpp, isfinite.
    """
    n = Node("abs", x)
    n.saves(x, "the sign of each element")
    sizes = n.output(result_like(n, x, None, "sizes"))
    small = current().new(x.dims, "bool", None, f"{current().scope}/what is not infinite")
    same = current().new(x.dims, "bool", None, f"{current().scope}/what is a number")
    finite = current().new(x.dims, "bool", None, f"{current().scope}/what is finite")
    del sizes, same, small
    every = made("", "bool", "whether all are finite")
    del finite, every
