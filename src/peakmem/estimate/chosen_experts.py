"""Experts of tokens that are decoded: the matrices of each row's experts are copied, row by row.

Source: transformers 5.24, integrations/moe.py (batched_mm_experts_forward). generate() takes it in place of grouped_mm
for every forward but the prompt's, on any device but a CPU (generation/utils.py, _optimize_model_for_decode); beam
search does not, and kernels of a server read the matrices where they lie.
"""

from __future__ import annotations

from collections.abc import Callable

from peakmem.estimate.attention import bmm
from peakmem.estimate.inference import STEPS_OF_ONE
from peakmem.estimate.inplace import add_into
from peakmem.estimate.ops import cast, mul, total_over
from peakmem.estimate.packed import Packed
from peakmem.estimate.param_adapters import Wrapped
from peakmem.estimate.shapes import index, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Parameter, Tensor, current, scope
from peakmem.estimate.weights import weight

COPY = "of each row's expert"
ROWS = ("b", "s", "K")


def copies_matrices(m: Structure, w: Wrapped | Parameter) -> bool:
    """Whether this step copies the experts' matrices; packed ones are read by kernels of their own."""
    return m.has("chosen_experts") and current().single in STEPS_OF_ONE and not isinstance(w, Packed)


def chosen_experts(m: Structure, x: Tensor, top_k_index: Tensor, top_k_weights: Tensor,
                   weights: dict[str, Wrapped | Parameter], gate: Callable[[Structure, Tensor], Tensor],
                   biased: bool) -> Tensor:
    """batched_mm_experts_forward on rows x of (b s, h). weights: the experts' matrices by name, in order.

    A copy goes when the next one is there; what a wrapper put together stays until its module returns.
    """
    tape, width = current(), x.dims[1]
    expert_ids = view(top_k_index, "(b s K)")
    first, second = weights
    selected = tape.new((ROWS, width), x.dtype, None, f"{tape.scope}/rows, for each expert")
    up = whole(weights[first])
    matrices = picked(up, expert_ids, first)
    biases = picked(weight(f"{first}_bias"), expert_ids, f"{first}_bias") if biased else None
    proj_out = gate(m, batched(selected, matrices, first, biases))
    down = whole(weights[second])
    matrices = picked(down, expert_ids, second)
    biases = picked(weight(f"{second}_bias"), expert_ids, f"{second}_bias") if biased else None
    proj_out = batched(proj_out, matrices, second, biases)
    weighted_out = mul(proj_out, view(view(top_k_weights, "(b s K)"), "(b s K) 1"), "output, weighted")
    final = total_over(view(weighted_out, (("b", "s"), ("K",), width)), 1)
    final = cast(final, x.dtype, "output")
    del selected, matrices, biases, up, down
    return final


def whole(w: Wrapped | Parameter) -> Tensor:
    """The matrices of all experts, with their adapters."""
    return w if isinstance(w, Parameter) else w.folded()


def picked(w: Tensor, expert_ids: Tensor, name: str) -> Tensor:
    """One matrix, or one bias, for every row."""
    copy = index(w, expert_ids, (ROWS, *w.dims[1:]), f"{name} {COPY}")
    if copy.storage:
        copy.storage.record.why.append("batched_mm, which generate() takes for decoding, multiplies copies of them")
    return copy


def batched(x: Tensor, matrices: Tensor, name: str, biases: Tensor | None) -> Tensor:
    """_batched_linear: (out, in) · (in, 1) for each row; (1, in) · (in, out) where experts have biases."""
    with scope(name):
        rows, width = x.dims
        if biases is None:
            return view(bmm(matrices, view(x, (rows, width, ()))), (rows, matrices.dims[1]))
        y = view(bmm(view(x, (rows, (), width)), matrices), (rows, matrices.dims[2]))
        return add_into(y, biases)
