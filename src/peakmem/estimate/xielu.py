"""xIELU, as transformers 5.24 runs it without a package of kernels (activations.py, XIELUActivation._xielu_python)."""

from __future__ import annotations

from peakmem.estimate.delta_ops import softplus
from peakmem.estimate.node import Node
from peakmem.estimate.ops import add, autocast_fp32, mul, result_like, sub
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, current, scope
from peakmem.estimate.weights import weight


def xielu(m: Structure, x: Tensor, name: str) -> Tensor:
    """A parabola above zero, an exponential below; both with a trained weight, plus half of x."""
    with scope(name):
        alpha_p = softplus(weight("alpha_p"))
        beta = eps = Tensor((), m.dtype, (), None)  # buffers
        alpha_n = add(beta, softplus(weight("alpha_n")))
        return chosen(positive(x), add(mul(mul(alpha_p, x), x), mul(beta, x)),
                      add(mul(sub(expm1(least(x, eps)), x), alpha_n), mul(beta, x)))


def positive(x: Tensor) -> Tensor:
    """x > 0."""
    return current().new(x.dims, "bool", None, f"{current().scope}/above zero")


def least(x: Tensor, y: Tensor) -> Tensor:
    """minimum: keeps both; the gradient is halved where they are equal, and zero where x is the larger.

    Source: derivatives.yaml, minimum.
    """
    n = Node("minimum", x)
    n.saves(x, f"which of two {n.scope} took")
    out = result_like(n, x, None, "smaller")
    n.works(x.dims, x.dtype)
    n.works(x.dims, "bool")
    n.gradient(0, memory="grad")
    n.works(x.dims, "bool")
    return n.output(out)


def expm1(x: Tensor) -> Tensor:
    """expm1: the result is kept; the gradient is multiplied with it plus one, which is made first."""
    given, x = x, autocast_fp32(x)  # an argument lives until the call returns
    n = Node("expm1", x)
    out = result_like(n, x, None, "exp - 1")
    n.keeps(out, f"slope of expm1 in {n.scope}")
    n.gradient(0, memory="grad", temporaries=((x.dims, x.dtype),))
    del given
    return n.output(out)


def chosen(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """where(condition, x, y): keeps the condition; each gradient has zeros where the other was taken."""
    n = Node("where", x, y)
    n.saves(condition, f"which of two {n.scope} took")
    out = result_like(n, x, None, "chosen")
    n.gradient(0, temporaries=(((), x.dtype),))
    n.gradient(1, temporaries=(((), y.dtype),))
    return n.output(out)
