"""Routers that choose groups of experts first, in fp32: DeepSeek-V2, DeepSeek-V3, Nemotron-H.

Source: XxxTopkRouter of models/deepseek_v3, models/deepseek_v2 and models/nemotron_h in transformers 5.24. What only
chooses has no gradient, but its first steps are recorded all the same.
"""

from __future__ import annotations

from peakmem.estimate.experts import divide_in_place, topk
from peakmem.estimate.layout import Dims, dims
from peakmem.estimate.node import Node
from peakmem.estimate.ops import activation, add, cast, promote, scale, shift, softmax, total_over
from peakmem.estimate.param_adapters import router_delta, router_weight
from peakmem.estimate.positions import made
from peakmem.estimate.shapes import contiguous, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, current, scope
from peakmem.estimate.weights import product


def group_router(m: Structure, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """DeepseekV3TopkRouter: logits, and each row's K weights and expert numbers."""
    with scope("gate"):
        delta = router_delta()
        x, w, logits = logits_in_fp32(x, delta)
        scores = activation(logits, "sigmoid")
        choice = add(scores, Tensor(dims("E"), "fp32", ("E",), None), "scores for the choice")
        groups = total_over(topk(view(choice, "(b s) G E/G"), "2")[0], 2, name="scores of groups")
        group_numbers = topk(groups, "Kg")[1]
        group_mask, score_mask = masks(groups)
        choice = filled(choice, score_mask)
        numbers = topk(choice, "K")[1]
        weights = gather(scores, numbers)
        if m.has("norm_topk"):
            divisor = shift(total_over(weights, 1, keep=True))
            weights = divide_in_place(weights, divisor)
        weights = scale(weights, "expert weights")
        del x, w, delta, group_numbers, group_mask, score_mask
        return logits, weights, numbers


def softmax_router(m: Structure, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """DeepseekV2TopkRouter: the largest of all, or of the chosen groups."""
    with scope("gate"):
        delta = router_delta()
        x, w, logits = logits_in_fp32(x, delta)
        scores = softmax(logits, "fp32")
        groups = None
        if m.has("expert_groups"):
            scores, groups = in_groups(scores)
        weights, numbers = topk(scores, "K")
        weights = scale(weights, "expert weights")
        del x, w, delta, groups
        return logits, weights, numbers


def in_groups(scores: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Only the scores of the chosen groups, and the variables that live as long as the router runs."""
    groups = largest(view(scores, "(b s) G E/G"))
    group_numbers = topk(groups, "Kg")[1]
    group_mask, score_mask = masks(groups)
    return filled(scores, score_mask), (groups, group_numbers, group_mask, score_mask)


def logits_in_fp32(x: Tensor, delta: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """F.linear(x.type(float32), weight.type(float32)): the rows, the weight, the logits.

    peft's parametrization keeps a weight with an adapter until the module returns.
    """
    x = view(x, "(b s) h")
    rows = cast(x, "fp32", "rows in fp32")
    w = router_weight(delta)
    logits = product(rows, cast(w, "fp32"), None)
    if (seen := current().router_logits) is not None:
        seen.append(logits)
    return x, w, logits


def masks(groups: Tensor) -> tuple[Tensor, Tensor]:
    """Which groups, and which experts, may be chosen: ones scattered into zeros, then spread over the experts."""
    group_mask = made("(b s) G", groups.dtype, "chosen groups")
    spread = group_mask.seen_as(dims("(b s) G E/G"))
    if "G" not in current().ones:  # one group's number is spread without a copy
        spread = contiguous(spread, "chosen groups' experts")
    return group_mask, spread.seen_as(dims("(b s) E"))


def filled(x: Tensor, mask: Tensor) -> Tensor:
    """x.masked_fill(~mask.bool(), number): keeps the inverted mask, the gradient is a new tensor."""
    allowed = made("(b s) E", "bool", "allowed")
    forbidden = made("(b s) E", "bool", "forbidden")
    del allowed
    n = Node("masked_fill", x)
    n.saves(forbidden, f"which values {n.scope} hid")
    out = n.makes(x.dims, x.dtype, None, "scores, masked")
    n.gradient(0)
    del forbidden, mask
    return n.output(out)


def gather(x: Tensor, numbers: Tensor) -> Tensor:
    """gather: keeps input and numbers, the gradient is added into zeros (GatherBackward0)."""
    n = Node("gather", x)
    n.saves(x, f"size of the gradient of {n.scope}")
    n.saves(numbers, f"which values {n.scope} took")
    out = n.makes(numbers.dims, x.dtype, None, "taken")
    n.gradient(0)
    return n.output(out)


def largest(x: Tensor, keep: bool = False) -> Tensor:
    """max over the last dimension: keeps the places, the gradient is written into zeros (MaxBackward0)."""
    n = Node("max", x)
    left: Dims = (*x.dims[:-1], ()) if keep else x.dims[:-1]
    values = n.makes(left, x.dtype, None, "largest")
    places = n.makes(left, "int64", None, "places of the largest")
    n.keeps(places, f"which values {n.scope} chose")
    n.gradient(0)
    return n.output(values)


def quotient(x: Tensor, y: Tensor) -> Tensor:
    """x / y: keeps both; the divisor's gradient is `-grad * ((x / y) / y)`, made first (DivBackward0)."""
    n = Node("div", x, y)
    dtype = promote(x, y)
    if n.needs(1):
        n.saves(x, f"gradient of the divisor in {n.scope}")
    n.saves(y, f"gradients of the division in {n.scope}")
    out = n.makes(x.dims, dtype, None, "shares")
    n.gradient(1, dims=x.dims, dtype=dtype, temporaries=((x.dims, dtype),) * 3)
    n.gradient(0, dtype=dtype)
    return n.output(out)
