"""Activation checkpointing: a hook on what is saved, and a second run of the layer.

Source: torch/utils/checkpoint.py (torch 2.13), the non-reentrant variant. A saved tensor becomes a promise;
the first promise that is asked for runs the layer again and collects what it saves, stopping right after the
last of them. Whatever the layer's call holds (its input, masks, tables) lives until its last node is done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol
from weakref import ref

from peakmem.errors import Impossible
from peakmem.estimate.layout import Dims, Memory
from peakmem.estimate.node import Node
from peakmem.estimate.tape import Tape, Tensor, current


class Keeper(Protocol):
    """Sees every result that is made, and may hand out an older one instead."""

    def call(self, op: str) -> int:
        """An operation begins: which call of its name this is."""

    def result(self, node: Node, dims: Dims, dtype: str, memory: Memory | None, name: str) -> Tensor:
        """The operation's next result."""


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


class Kept:
    """Results of chosen operations that the first run keeps for the second: one run's view of them.

    Source: torch/utils/checkpoint.py, create_selective_checkpoint_contexts: by operation and number of the call. It
    refuses a second run that calls an operation more often than the first.
    """

    def __init__(self, store: dict[tuple[str, int], list[Tensor]], save: tuple[str, ...],
                 before: dict[str, int] | None = None) -> None:
        self.store, self.save, self.before = store, save, before
        self.calls: dict[str, int] = {}

    @property
    def first(self) -> bool:
        return self.before is None

    def call(self, op: str) -> int:
        self.calls[op] = number = self.calls.get(op, -1) + 1
        if self.before is not None and number > self.before.get(op, -1):
            raise Impossible("--checkpoint selective: PyTorch fails here, in backward: autocast copies a tensor that "
                             "layers share in each second run, but once in forward; give --checkpoint full")
        return number

    def result(self, node: Node, dims: Dims, dtype: str, memory: Memory | None, name: str) -> Tensor:
        key = node.op, node.call
        if not self.first:
            found = self.store.get(key)
            if found:
                return found.pop(0)
            return current().new(dims, dtype, memory, name)
        made = current().new(dims, dtype, memory, name)
        if self.saves(*key):
            kept = made.detached()
            if kept.storage:
                kept.storage.record.why.append(f"selective checkpointing keeps what {node.op} makes in {node.scope}")
            self.store.setdefault(key, []).append(kept)
        return made

    def saves(self, op: str, call: int) -> bool:
        return op in self.save or op in ("mm", "addmm") and "every-second-mm" in self.save and call % 2 == 0


class Frame:
    """One call of a checkpointed layer: what it was called with, what was promised, what was kept."""

    def __init__(self, body: Callable[..., Tensor], inputs: tuple[Any, ...], stops_early: bool,
                 save: tuple[str, ...]) -> None:
        tape = current()
        self.body, self.inputs, self.stops_early, self.save = body, inputs, stops_early, save
        self.store: dict[tuple[str, int], list[Tensor]] = {}
        self.keeper = Kept(self.store, save) if save else None
        self.promised: list[ref[Promise]] = []
        self.collected = 0
        self.output: Tensor | None = None  # of a second run that went to its end
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
        before = tape.scope, tape.layer, tape.autocast, tape.pack, tape.kind, tape.casts, tape.keeper
        in_graph, tape.in_graph = tape.in_graph, []
        self.collected = 0
        tape.scope, tape.layer, tape.autocast = self.scope, self.layer, self.autocast
        tape.pack, tape.kind, tape.casts = self.collect, "activations", {}
        tape.keeper = Kept(self.store, self.save, self.keeper.calls) if self.keeper else None
        try:
            output = self.body(*self.inputs)
            self.output = output.detached()  # CheckpointFunction.backward holds it until the layer's backward returns
        except _Stop:
            pass
        tape.casts = {}
        tape.in_graph = in_graph
        tape.scope, tape.layer, tape.autocast, tape.pack, tape.kind, tape.casts, tape.keeper = before


def checkpointed(tape: Tape, body: Callable[..., Tensor], inputs: tuple[Any, ...], stops_early: bool,
                 save: tuple[str, ...] = ()) -> Tensor:
    """Run a layer so that it keeps its inputs, and of its results those of the operations in `save`."""
    frame = Frame(body, inputs, stops_early, save)
    hidden = next((x for x in inputs if isinstance(x, Tensor) and x.storage), None)
    if hidden is not None and hidden.storage is not None:
        hidden.storage.record.saved = True
        hidden.storage.record.why.append(f"{tape.scope} is computed again from it")
    outer, tape.pack = tape.pack, frame.promise
    keeper, tape.keeper = tape.keeper, frame.keeper
    y = body(*inputs)
    tape.pack, tape.keeper = outer, keeper
    return y
