"""Gradient clipping. Source: torch 2.13, nn/utils/clip_grad.py, line by line; names as there."""

from __future__ import annotations

from peakmem.estimate.layout import BYTES, flat, size_key
from peakmem.estimate.optimizers.slots import SCALAR, Slot, TensorList, by_dtype, each, named
from peakmem.estimate.tape import Key, Tensor, current


def clip_grad_norm(slots: list[Slot]) -> Tensor | None:
    """clip_grad_norm_: one number for each gradient, then for all; gradients are scaled in place.

    The result lives as long as the caller holds it.
    """
    if not slots:
        return None
    total_norm = get_total_norm(slots)
    clip_grads_with_norm(total_norm)
    return total_norm


def get_total_norm(slots: list[Slot]) -> Tensor:
    """The norms of each group, then their norm. Gradients are grouped by their own dtype, whatever is updated."""
    norms = TensorList()
    divided = current().parts.partial_norms
    for group in by_dtype(slots, dtype_as_it_is):
        partial = None
        if not divided:
            partial = named("norms of pieces of gradients", SCALAR, "fp32", pieces(group), scratch=True)
        norms += [slot.scalar("gradient norm", dtype_as_it_is(slot)) for slot in each(group)]
        del partial
    dtype = "fp32" if any(norm.dtype == "fp32" for norm in norms) else norms[0].dtype
    stack = named("gradient norms", SCALAR, dtype, stacked(slots, BYTES[dtype]))
    whole = added_up(stack, dtype) if divided else None
    total_norm = named("total gradient norm", SCALAR, dtype)
    del stack, whole
    return total_norm


def dtype_as_it_is(slot: Slot) -> str:
    """The dtype of a gradient; that of what it updates where it has gone into a buffer."""
    return slot.grad.dtype if slot.grad is not None else slot.dtype


def added_up(stack: Tensor, dtype: str) -> Tensor:
    """Norms of shards as those of whole gradients: `x ** 2`, all_reduce, `x ** 0.5`.

    The foreach kernels take no DTensors. Source: torch 2.13, distributed/tensor/_ops/_math_ops.py, _NormPartial.
    """
    assert stack.record is not None
    key = stack.record.key
    squares = named("squares of gradient norms", SCALAR, dtype, key)
    summed = named("squares of gradient norms, added up over all GPUs", SCALAR, dtype, key)
    whole = named("gradient norms of all GPUs", SCALAR, dtype, key)
    del squares, summed
    return whole


def clip_grads_with_norm(total_norm: Tensor) -> None:
    """`clip_coef = max_norm / (total_norm + 1e-6)`: a sum, its reciprocal, the quotient; then the clamped one."""
    dtype = total_norm.dtype
    shifted = named("total gradient norm, shifted", SCALAR, dtype)
    reciprocal = named("its reciprocal", SCALAR, dtype)
    clip_coef = named("clip coefficient", SCALAR, dtype)
    del reciprocal, shifted
    clip_coef_clamped = named("clip coefficient, clamped", SCALAR, dtype)
    del clip_coef, clip_coef_clamped


def pieces(slots: list[Slot]) -> Key:
    """_foreach_norm's scratch: one fp32 number per 65536 elements of the largest tensor, for each tensor.

    Source: aten/src/ATen/native/cuda/ForeachReduceOp.cu, kChunkSize.
    """
    sizes = tuple(sorted({size_key("fp32", flat(slot.dims))[1] for slot in slots}))
    return ("times largest", stacked(slots, BYTES["fp32"]), 65536, sizes)


def stacked(slots: list[Slot], width: int) -> Key:
    """The size of a vector with one number for each tensor, those of repeated layers counted by letters."""
    counts: dict[str, int] = {}
    for slot in slots:
        counts[slot.parameter.fold] = counts.get(slot.parameter.fold, 0) + 1
    return ("+", *((width * count, (fold,) if fold else ()) for fold, count in counts.items()))
