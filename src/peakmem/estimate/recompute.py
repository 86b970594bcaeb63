"""Activation checkpointing: a hook on what is saved, and a second run of the layer.

Source: torch/utils/checkpoint.py (torch 2.13), the non-reentrant variant. A saved tensor becomes a promise;
the first promise that is asked for runs the layer again and collects what it saves, stopping right after the
last of them. Whatever the layer's call holds (its input, masks, tables) lives until its last node is done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import ref

from peakmem.estimate.tape import Tape, Tensor, current


class _Stop(Exception):
    """The last tensor that anybody waits for has been computed again."""


class Promise:
    """Stands for a saved tensor until backward asks for it."""

    __slots__ = ("frame", "tensor", "__weakref__")

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.tensor: Tensor | None = None

    def unpack(self) -> Tensor:
        if self.tensor is None:
            self.frame.run_again()
        tensor, self.tensor = self.tensor, None
        assert tensor is not None, "the second run saved less than the first"
        return tensor


class Frame:
    """One call of a checkpointed layer: what it was called with, and what was promised."""

    def __init__(self, body: Callable[..., Tensor], inputs: tuple[Any, ...], stops_early: bool) -> None:
        tape = current()
        self.body, self.inputs, self.stops_early = body, inputs, stops_early
        self.promised: list[ref[Promise]] = []
        self.collected = 0
        self.scope, self.layer, self.autocast = tape.scope, tape.layer, tape.autocast

    def promise(self, x: Tensor) -> Promise:
        """In the first run: take note that something is saved, without keeping it."""
        promise = Promise(self)
        self.promised.append(ref(promise))
        return promise

    def collect(self, x: Tensor) -> Tensor:
        """In the second run: hand a tensor to the promise made for it."""
        promise = self.promised[self.collected]()
        self.collected += 1
        x = x.detached()
        if promise is not None:
            promise.tensor = x
        if self.stops_early and self.collected == len(self.promised):
            raise _Stop
        return x

    def run_again(self) -> None:
        tape = current()
        before = tape.scope, tape.layer, tape.autocast, tape.pack, tape.kind, tape.casts
        self.collected = 0
        tape.scope, tape.layer, tape.autocast = self.scope, self.layer, self.autocast
        tape.pack, tape.kind, tape.casts = self.collect, "activations", {}
        try:
            self.body(*self.inputs)
        except _Stop:
            pass
        tape.casts = {}
        tape.scope, tape.layer, tape.autocast, tape.pack, tape.kind, tape.casts = before


def checkpointed(tape: Tape, body: Callable[..., Tensor], inputs: tuple[Any, ...], stops_early: bool) -> Tensor:
    """Run a layer so that it keeps nothing but its inputs."""
    frame = Frame(body, inputs, stops_early)
    for x in inputs:
        if isinstance(x, Tensor) and x.storage:
            x.storage.record.why.append(f"{tape.scope} is computed again from it")
    outer, tape.pack = tape.pack, frame.promise
    y = body(*inputs)
    tape.pack = outer
    return y
