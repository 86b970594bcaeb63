"""Optimizer states, and what a step allocates on the way. Rows of tables/optimizers.py say how many of each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Parameter, Tape


def trained(tape: Tape) -> list[Parameter]:
    """Parameters that get a gradient, in the order of their definition."""
    return [p for p in tape.parameters.values() if p.trained]


def each(tape: Tape) -> Iterator[Parameter]:
    """Trained parameters in order, those of repeated layers inside their fold, one after another."""
    run: list[Parameter] = []
    for p in [*trained(tape), None]:
        if run and (p is None or p.fold != run[-1].fold or p.fold == ""):
            with tape.repeated(run[0].fold):
                yield from run
            run = []
        if p is not None:
            run.append(p)


def make_states(tape: Tape, m: Structure) -> None:
    """Resident states of every trained parameter: exist from the first step on."""
    outer, tape.kind = tape.kind, "optimizer_state"
    for p in each(tape):
        for name in ("exp_avg", "exp_avg_sq"):
            p.states.append(tape.new(p.dims, m.state_dtype or p.dtype, None, f"{p.full_name}/{name}"))
        if m.optimizer_implementation == "fused":
            p.states.append(tape.new((), "fp32", None, f"{p.full_name}/step"))
    tape.kind = outer


def step(tape: Tape, m: Structure) -> None:
    """One optimizer step over gradients that exist."""
    tape.at("optimizer")
    if m.optimizer_implementation == "foreach":
        denominators = [tape.new(p.dims, p.dtype, None, f"{p.full_name}/denominator") for p in each(tape)]
        free_folded(tape, denominators)
    elif m.optimizer_implementation == "loop":
        denominator = None
        for p in each(tape):
            root = tape.new(p.dims, p.dtype, None, f"{p.full_name}/root")
            scaled = tape.new(p.dims, p.dtype, None, f"{p.full_name}/root, scaled")
            del root
            denominator = tape.new(p.dims, p.dtype, None, f"{p.full_name}/denominator") if False else scaled
            del scaled
        del denominator


def free_folded(tape: Tape, tensors: list) -> None:
    """Let tensors go, those of repeated layers as often as they were made."""
    while tensors:
        fold = tensors[-1].storage.record.fold
        with tape.repeated(fold):
            while tensors and tensors[-1].storage.record.fold == fold:
                tensors.pop()


def clear(tape: Tape, m: Structure) -> None:
    """zero_grad(set_to_none=True): the gradients go."""
    tape.at("zero_grad")
    for p in each(tape):
        p.grad = None
