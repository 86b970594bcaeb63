"""BLOOM's gelu, written out in Python in both directions (models/bloom/modeling_bloom.py, GeLUFunction)."""

from __future__ import annotations

from peakmem.estimate.autograd import pass_through
from peakmem.estimate.node import Node
from peakmem.estimate.ops import result_like
from peakmem.estimate.tape import Tensor, current

INSIDE = "+scaled +cubic +square -cubic +bracket -square +argument -scaled -bracket"
"""0.797·x·(1 + 0.0447·x·x), from left to right: what each operation makes, and what is dropped after it."""

FORWARD = f"+half {INSIDE} +tanh -argument +sum -tanh"
"""x·0.5·(1 + tanh(…)), up to the last product."""

BACKWARD = (f"{INSIDE} +tanh -argument +half +tanh² +slope -tanh² +x +x² -x +factor -x² +product -slope -factor "
            "+first -half -product +sum +second -sum +ff -first -second")
"""bloom_gelu_back, up to the last product; `tanh` and `ff` live until it returns."""


def bloom_gelu(x: Tensor) -> Tensor:
    """GeLUFunction: keeps its input alone, and computes the rest again in backward."""
    n = Node("gelu", x)
    n.saves(x, f"slope of gelu in {n.scope}")
    alive = pass_through(current(), FORWARD, x, f"{n.scope}/gelu")
    out = result_like(n, x, None, "gelu")
    alive.clear()
    n.gradient(0, memory="grad", steps=BACKWARD)
    return n.output(out)
