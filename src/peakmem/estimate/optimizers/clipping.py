"""Gradient clipping. Source: torch 2.13, nn/utils/clip_grad.py, line by line; names as there."""

from __future__ import annotations

from peakmem.estimate.layout import BYTES
from peakmem.estimate.optimizers.slots import SCALAR, Slot, TensorList, each
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
    norms = TensorList(slot.scalar("gradient norm", slot.gradient_dtype) for slot in each(slots))
    dtype = "fp32" if any(norm.dtype == "fp32" for norm in norms) else norms[0].dtype
    tape = current()
    stack = tape.new(SCALAR, dtype, None, "gradient norms", stacked(slots, BYTES[dtype]))
    total_norm = tape.new(SCALAR, dtype, None, "total gradient norm")
    del stack
    return total_norm


def clip_grads_with_norm(total_norm: Tensor) -> None:
    """`clip_coef = max_norm / (total_norm + 1e-6)`: a sum, its reciprocal, the quotient; then the clamped one."""
    tape, dtype = current(), total_norm.dtype
    shifted = tape.new(SCALAR, dtype, None, "total gradient norm, shifted")
    reciprocal = tape.new(SCALAR, dtype, None, "its reciprocal")
    clip_coef = tape.new(SCALAR, dtype, None, "clip coefficient")
    del reciprocal, shifted
    clip_coef_clamped = tape.new(SCALAR, dtype, None, "clip coefficient, clamped")
    del clip_coef, clip_coef_clamped


def stacked(slots: list[Slot], width: int) -> Key:
    """The size of a vector with one number for each tensor, those of repeated layers counted by letters."""
    counts: dict[str, int] = {}
    for slot in slots:
        counts[slot.parameter.fold] = counts.get(slot.parameter.fold, 0) + 1
    return ("+", *((width * count, (fold,) if fold else ()) for fold, count in counts.items()))
