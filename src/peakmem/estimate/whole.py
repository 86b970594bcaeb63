"""Every GPU holds everything: what the ways of dividing parameters refine, and the buffers they use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from peakmem.estimate.layout import Dims
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Key, Parameter, Tape, Tensor


class Whole:
    """Nothing is divided: every GPU holds every parameter. What the other ways of dividing refine."""

    source = ""

    def __init__(self, tape: Tape, m: Structure) -> None:
        self.tape, self.m = tape, m
        self.states_at = self.weights_at = "device"
        self.partial_norms = False  # whether the norm of a gradient is that of a part, to be added up over the GPUs
        tape.origin = self.source

    def parameter(self, shape: Dims, dtype: str, name: str, trained: bool, fold: str) -> Parameter:
        """Make a parameter; the tape's kind is weights."""
        return Parameter(shape, dtype, self.tape.new(shape, dtype, None, name).storage, name, trained, fold)

    @contextmanager
    def placed(self, place: str) -> Iterator[None]:
        """What is made inside lies there."""
        outer, self.tape.place = self.tape.place, place
        yield
        self.tape.place = outer

    def optimizer_place(self) -> AbstractContextManager[None]:
        """Where the optimizer keeps its tensors, and runs."""
        return self.placed(self.states_at)

    def weight_place(self) -> AbstractContextManager[None]:
        """Where this GPU's parts of the parameters lie."""
        return self.placed(self.weights_at)

    def begin(self, micro_batch: int) -> None:
        """A micro-batch's forward is about to begin."""

    def make_gradients(self) -> bool:
        """Make the gradients that the last step zeroed and did not drop, if they are no tensors of their own."""
        return False

    def model(self, run: Callable[[], Tensor]) -> Tensor:
        """Run the model's forward."""
        return run()

    def after_backward(self) -> None:
        """The backward's last callback, while the seed gradient lives."""

    def before_step(self) -> None:
        """All gradients are there."""

    def after_step(self) -> None:
        """The optimizer is done."""


def total(parts: list[Key]) -> Key:
    """Sizes in one buffer; like ones are written once."""
    return parts[0] if len(parts) == 1 else ("+", *parts)


def buffer(tape: Tape, key: Key, dtype: str, name: str, why: str, kind: str = "communication") -> Tensor:
    """A flat buffer of this size."""
    outer, tape.kind, tape.purpose = tape.kind, kind, why
    made = tape.new((), dtype, None, name, key)
    tape.kind, tape.purpose = outer, ""
    return made
