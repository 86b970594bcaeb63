"""Trained parameters as an optimizer sees them, and what Python's lists and loops do over repeated layers.

A repeated layer's parameters stand in a fold. A loop over all parameters enters each fold once; a list that
holds tensors of folds lets them go inside the same folds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import attrgetter

from peakmem.estimate.layout import Dims
from peakmem.estimate.optimizers.purposes import purpose_of
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Key, Parameter, Tape, Tensor, current

SCALAR: Dims = ()


class Slot:
    """One parameter under the optimizer: the tensor it updates, its gradient, its states.

    The tensor is the parameter itself, this GPU's shard of it, or an fp32 master copy: `dims` and `dtype` are
    those of what is updated, and states and temporaries follow them.
    """

    __slots__ = ("parameter", "dims", "dtype", "state_dtype", "states", "master")

    def __init__(self, parameter: Parameter, m: Structure) -> None:
        owned = parameter.owned
        self.parameter = parameter
        self.dims = owned.dims
        self.master: Tensor | None = None
        self.dtype = m.master or owned.dtype
        self.state_dtype = m.state_dtype or self.dtype
        self.states: dict[str, Tensor] = {}

    @property
    def name(self) -> str:
        return self.parameter.full_name

    @property
    def grad(self) -> Tensor | None:
        return self.parameter.owned.grad

    @property
    def gradient_dtype(self) -> str:
        """What dtype the optimizer sees the gradient in: a master copy brings its own."""
        return self.dtype if self.master or self.grad is None else self.grad.dtype

    def make(self, name: str, dims: Dims | None = None, dtype: str = "", key: Key | None = None) -> Tensor:
        """A tensor that the step needs for a while."""
        return named(f"{self.name}/{name}", self.dims if dims is None else dims, dtype or self.dtype, key)

    def scalar(self, name: str, dtype: str = "") -> Tensor:
        """One number, in the dtype of what it was computed from."""
        return self.make(name, SCALAR, dtype)

    def keep(self, name: str, dims: Dims | None = None, dtype: str = "", key: Key | None = None) -> Tensor:
        """A state: it stays from step to step."""
        tape = current()
        outer, tape.kind = tape.kind, "optimizer_state"
        state = self.states[name] = self.make(name, dims, dtype or self.state_dtype, key)
        tape.kind = outer
        return state


def named(name: str, dims: Dims, dtype: str, key: Key | None = None, scratch: bool = False) -> Tensor:
    """A tensor of the optimizer's, with what it is for."""
    made = current().new(dims, dtype, None, name, key, scratch)
    if made.storage:
        made.storage.record.purpose = purpose_of(name.rpartition("/")[2])
    return made


class TensorList(list[Tensor]):
    """A Python list of tensors. Let go, it frees those of repeated layers as often as they were made."""

    def __del__(self) -> None:
        free_folded(current(), self)


def free_folded(tape: Tape, tensors: list[Tensor]) -> None:
    """Let tensors go from the end, as a list does, those of repeated layers inside their fold."""
    while tensors:
        fold = fold_of(tensors[-1])
        with tape.repeated(fold):
            while tensors and fold_of(tensors[-1]) == fold:
                tensors.pop()


def fold_of(x: Tensor) -> str:
    return x.storage.record.fold if x.storage else ""


def each(slots: Iterable[Slot]) -> Iterator[Slot]:
    """Slots in order, those of repeated layers inside their fold, one after another."""
    tape = current()
    run: list[Slot] = []
    for slot in [*slots, None]:
        fold = slot.parameter.fold if slot else ""
        if run and (slot is None or not fold or fold != run[-1].parameter.fold):
            with tape.repeated(run[0].parameter.fold):
                yield from run
            run = []
        if slot is not None:
            run.append(slot)


def by_dtype(slots: list[Slot], of: Callable[[Slot], str] = attrgetter("dtype")) -> list[list[Slot]]:
    """Slots grouped by a dtype, that of what is updated or another, as torch.optim's foreach forms group them.

    The group that is met last comes first: _group_tensors_by_device_and_dtype lists a hash map of the C++ library.
    """
    groups: dict[str, list[Slot]] = {}
    for slot in slots:
        groups.setdefault(of(slot), []).append(slot)
    return list(groups.values())[::-1]
