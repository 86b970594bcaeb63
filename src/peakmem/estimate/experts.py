"""Mixture of experts as transformers 5.24 runs it: a router, and experts as 3-D weights.

Source: integrations/moe.py (grouped_mm_experts_forward, the default implementation but for decoding) and the routers in
models/mixtral and models/qwen3_moe. Every token meets K of E experts, so the sorted rows are b·s·K in number
however the router distributes them: nothing here depends on the balance.
"""

from __future__ import annotations

from collections.abc import Callable

from peakmem.estimate.chosen_experts import chosen_experts, copies_matrices
from peakmem.estimate.inplace import add_into
from peakmem.estimate.layout import flat
from peakmem.estimate.node import Node
from peakmem.estimate.ops import activation, cast, mul, promote, softmax, total_over
from peakmem.estimate.packed import Packed, product_fused
from peakmem.estimate.param_adapters import adapted_weights, router_delta, router_weight
from peakmem.estimate.positions import made
from peakmem.estimate.shapes import index, split, swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Parameter, Tensor, current, scope
from peakmem.estimate.weights import product, weight

Gate = Callable[[Structure, Tensor], Tensor]
SORTED = "rows, by expert"


def router(m: Structure, x: Tensor, keeps_dtype: bool, name: str = "gate",
           as_rows: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """MixtralTopKRouter, Qwen3MoeTopKRouter: logits, and each row's K weights and expert numbers.

    keeps_dtype: Qwen3-MoE, whose softmax takes the logits as they are and whose weights return to their dtype;
    Mixtral copies the logits to fp32 first and stays there. as_rows: Jamba, whose weights get the dtype of the rows.
    """
    with scope(name):
        delta = router_delta()
        x = x if as_rows else view(x, "(b s) h")
        w = router_weight(delta)
        logits = product(x, w, None)
        if (seen := current().router_logits) is not None:
            seen.append(logits)
        chances = softmax(logits if keeps_dtype else cast(logits, "fp32"), "fp32")
        values, numbers = topk(chances, "K")
        if m.has("norm_topk"):
            values = divide_in_place(values, total_over(values, 1, keep=True))
        if keeps_dtype:
            values = cast(values, x.dtype if as_rows else logits.dtype, "expert weights")
        del delta, w
        return logits, values, numbers


def chosen_first(m: Structure, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """GraniteMoeTopKRouter: the K largest logits, in fp32, then a softmax over those."""
    with scope("router"):
        delta = router_delta()
        w = router_weight(delta)
        logits = cast(product(x, w, None), "fp32", "logits in fp32")
        if (seen := current().router_logits) is not None:
            seen.append(logits)
        values, numbers = topk(logits, "K")
        weights = cast(softmax(values), x.dtype, "expert weights")
        del delta, w
        return logits, weights, numbers


def experts(m: Structure, x: Tensor, top_k_index: Tensor, top_k_weights: Tensor, gate: Gate | None = None,
            biased: bool = False, up: str = "gate_up_proj") -> Tensor:
    """grouped_mm_experts_forward on rows x of (b s, h): sorted by expert, two grouped products, sorted back.

    gate: the experts' own `_apply_gate`; biased: each product has a bias, picked for every row and added in place.
    up: the first matrices; `up_proj` where nothing is gated. Where generate() decodes: see chosen_experts.py.
    """
    width = x.dims[1]
    with scope("experts"):
        gate_up_proj, down_proj = adapted_weights(m) if up == "gate_up_proj" else (weight(up), weight("down_proj"))
        if copies_matrices(m, gate_up_proj):
            return chosen_experts(m, x, top_k_index, top_k_weights, {up: gate_up_proj, "down_proj": down_proj},
                                  gate or gated, biased)
        sample_weights = view(top_k_weights, "(b s K)")
        expert_ids_g = made("(b s K)", "int64", "expert numbers, sorted")
        perm = made("(b s K)", "int64", "order by expert")
        selected = index(x, made("(b s K)", "int64", "row of each sorted place"),
                         (("b", "s", "K"), width), SORTED)
        sample_weights_g = index(sample_weights, perm, "(b s K)", "expert weights, sorted")
        histc_input = made("(b s K)", "int32", "expert numbers in int32")
        tokens_per_expert = made("E", "int32", "rows per expert")
        offsets = made("E", "int32", "where each expert ends")
        biases = picked("gate_up_proj_bias", expert_ids_g) if biased else None
        gate_up = gate_up_proj if isinstance(gate_up_proj, Parameter) else gate_up_proj.folded()
        proj_out = grouped(selected, gate_up, up, offsets, biases)
        proj_out = (gate or gated)(m, proj_out)
        biases = picked("down_proj_bias", expert_ids_g) if biased else None
        down = down_proj if isinstance(down_proj, Parameter) else down_proj.folded()
        proj_out = grouped(proj_out, down, "down_proj", offsets, biases)
        weighted_out = mul(proj_out, view(sample_weights_g, "(b s K) 1"), "output, weighted")
        inv_perm = made("(b s K)", "int64", "order back")
        made("(b s K)", "int64", "arange")
        weighted_out = index(weighted_out, inv_perm, (("b", "s", "K"), width), "output, in order")
        final = total_over(view(weighted_out, (("b", "s"), ("K",), width)), 1)
        final = cast(final, x.dtype, "output")
        del expert_ids_g, histc_input, tokens_per_expert, gate_up, down, gate_up_proj, down_proj
        return final


def picked(name: str, expert_ids: Tensor) -> Tensor:
    """The bias of every row's expert."""
    bias = weight(name)
    return index(bias, expert_ids, (("b", "s", "K"), bias.dims[1]), f"{name} of each row")


def gated(m: Structure, gate_up: Tensor) -> Tensor:
    """_default_apply_gate."""
    gate, up = split(gate_up, 1, ["x", "x"])
    return mul(activation(gate, m.activation), up)


def grouped(x: Tensor, w: Tensor, name: str, offsets: Tensor, biases: Tensor | None = None) -> Tensor:
    """grouped_mm of rows, sorted by expert, with each expert's own (out, in) matrix; or (in, out) where it has biases.

    Not on autocast's lists: the rows take the dtype of the weight. The weight's gradient comes first, through a
    transposed view (derivatives.yaml, _grouped_mm).
    """
    with scope(name):
        if biases is None and not isinstance(w, Packed):
            w = swap(w, w.dims)  # transpose(-2, -1), older than the copy of x
        x = cast(x, w.dtype)
        if isinstance(w, Packed):
            y = product_fused(x, w, w.dims[1 if biases is None else 2])
            return y if biases is None else add_into(y, biases)
        n = Node("grouped_mm", x, w)
        if n.needs(1):
            n.saves(x, f"gradient of {n.scope}")
        if n.needs(0):
            n.saves(w, f"gradient of the input of {n.scope}")
        n.saves(offsets, f"which rows belong to which expert of {n.scope}")
        y = n.makes((x.dims[0], w.dims[1 if biases is None else 2]), x.dtype)
        n.flops(2, (*flat(y.dims), *x.dims[1]))
        n.gradient(1, view=biases is None)
        n.gradient(0)
        y = n.output(y)
        return y if biases is None else add_into(y, biases)


def topk(x: Tensor, k: str) -> tuple[Tensor, Tensor]:
    """topk over the last dimension: keeps the indices, the gradient is written into zeros (TopkBackward0)."""
    n = Node("topk", x)
    values = n.makes((*x.dims[:-1], (k,)), x.dtype, None, "largest")
    indices = n.makes(values.dims, "int64", None, "places of the largest")
    n.keeps(indices, f"which values {n.scope} chose")
    n.gradient(0)
    return n.output(values), indices


def divide_in_place(x: Tensor, y: Tensor) -> Tensor:
    """x /= y: the result takes x's memory, so a copy of x is kept for the gradient of y.

    That gradient is `-grad * ((x / y) / y)`: three tensors on the way (FunctionsManual.cpp,
    div_tensor_other_grad). A wider y widens all but the negated gradient.
    """
    n = Node("div_", x, y)
    if n.needs(0) or n.needs(1):
        n.saves(y, f"gradients of the division in {n.scope}")
    if n.needs(1):
        n.saves(n.makes(x.dims, x.dtype, None, "undivided copy"), f"gradient of the divisor in {n.scope}")
    dtype = promote(x, y)
    n.gradient(1, dims=x.dims, dtype=dtype, temporaries=((x.dims, dtype), (x.dims, dtype), (x.dims, x.dtype)))
    n.gradient(0, dtype=dtype)
    return n.output(x.seen_as(x.dims))
