"""One operation in autograd's graph: what it saves, and the gradients that its backward formula makes."""

from __future__ import annotations

from typing import Any, NamedTuple

from peakmem.estimate.layout import Dims, Memory, squeezed
from peakmem.estimate.tape import Key, Parameter, Tensor, current


class Gradient(NamedTuple):
    """One gradient of an operation, as its backward formula makes it.

    how: `new` (a tensor of its own), `pass` (the incoming gradient itself), `reshape` and `permute` (the
    incoming gradient under the input's shape), `expand` (the same, a summed dimension being expanded), `zero` (a
    full tensor of which the gradient is a slice), `contiguous` (a copy unless it is so), `saved` (what was saved at
    the edge's place),
    `unbind` (one element of the incoming gradient's last dimension),
    `rows` (a tensor of `dims`, of whose last dimension the gradient is a part, with this memory order),
    `work` (no gradient at all: a tensor that the formula needs until it returns), `dense` (the same: a contiguous copy
    of the incoming gradient, where it is not so).
    steps: tensors like the gradient that are born (`+name`) and dropped (`-name`) on the way to it.
    """

    edge: int
    how: str
    dims: Dims
    dtype: str
    memory: Memory | str | None  # an order, "grad" (as the incoming gradient), None: contiguous
    temporaries: tuple[tuple[Dims, str], ...]
    view: bool
    slot: int
    steps: str = ""


class Edge(NamedTuple):
    """Where the gradient of one input goes, and what it must look like there."""

    target: Any  # Node or Parameter
    slot: int
    dims: Dims
    dtype: str
    name: str


class Node:
    """One operation in the graph: declared once, in the order in which things happen."""

    __slots__ = ("op", "edges", "saved", "gradients", "sequence", "scope", "fold", "active", "buffer", "tape",
                 "deliver", "layer", "loop", "hook", "incoming", "held", "call", "scratches", "formula", "waiting")

    def __init__(self, op: str, *inputs: Tensor, starts: bool = False) -> None:
        self.op = op
        self.tape = tape = current()
        self.formula: Any = None  # an autograd.Function's own backward: (tape, gradients) -> a gradient for each input
        self.active = tape.grad_enabled and (starts or any(x.needs_grad for x in inputs))
        self.scope = tape.scope
        self.call = tape.keeper.call(op) if tape.keeper is not None else 0
        if not self.active:
            return
        self.edges: list[Any] = [
            Edge(x if isinstance(x, Parameter) else x.node, x.slot, x.dims, x.dtype, x.name)
            if x.needs_grad else None
            for x in inputs
        ]
        self.saved: list[Any] = []
        self.gradients: list[Gradient] = []
        self.sequence = tape.sequence = tape.sequence + 1
        self.fold, self.layer, self.loop = tape.fold, tape.layer, tape.loop
        self.buffer: list[Tensor | None] = [None]
        self.waiting = 0  # for so many gradients in this backward
        self.deliver: tuple[int, ...] = ()
        self.incoming: Dims | None = None
        self.scratches: list[tuple[Key, str]] = []
        self.hook: Any = None
        self.held: list[Tensor | None] | None = None  # what a leaf keeps as long as the graph lives

    @staticmethod
    def leaf(x: Tensor) -> Tensor:
        """A tensor whose own gradient is kept, beside the parameters."""
        node = Node("leaf", starts=True)
        node.held = [x.detached()]
        return node.output(x)

    def saves(self, x: Tensor, why: str) -> None:
        """Keep a tensor for the backward, and say what for."""
        if not self.active:
            return
        pack = self.tape.pack
        if x.storage:
            x.storage.record.why.append(why)
            x.storage.record.saved |= pack is None
        self.saved.append(x if pack is None else pack(x))

    def keeps(self, x: Tensor, why: str) -> None:
        """Keep a result for the backward. Without its graph: it would hold this very node."""
        if self.active:
            self.saves(x.detached(), why)

    def needs(self, edge: int) -> bool:
        """Whether the gradient of this input is wanted at all."""
        return self.active and self.edges[edge] is not None

    def makes(self, dims: Dims, dtype: str, memory: Memory | None = None, name: str = "output") -> Tensor:
        """The operation's result, in memory of its own."""
        tape = self.tape
        if tape.keeper is None:
            return tape.new(dims, dtype, memory, f"{tape.scope}/{name}")
        return tape.keeper.result(self, dims, dtype, memory, f"{tape.scope}/{name}")

    def gradient(self, edge: int, how: str = "new", *, dims: Dims | None = None, dtype: str | None = None,
                 memory: Memory | str | None = None, temporaries: tuple[tuple[Dims, str], ...] = (),
                 view: bool = False, slot: int = 0, steps: str = "") -> None:
        """Declare the gradient of an input; lines stand in the order in which the formula computes them."""
        if not self.active or self.edges[edge] is None:
            return
        target = self.edges[edge]
        self.gradients.append(Gradient(edge, how, target.dims if dims is None else dims,
                                       target.dtype if dtype is None else dtype, memory, temporaries, view, slot,
                                       steps))

    def works(self, dims: Dims, dtype: str, memory: Memory | None = None) -> None:
        """Declare a tensor that the backward formula holds until it returns."""
        if self.active:
            self.gradients.append(Gradient(-1, "work", dims, dtype, memory, (), False, 0))

    def works_on_contiguous(self) -> None:
        """Declare that the backward formula copies an incoming gradient that does not lie as its shape counts."""
        if self.active:
            self.gradients.append(Gradient(-1, "dense", (), "", None, (), False, 0))

    def needs_scratch(self, key: Key, name: str) -> None:
        """Declare memory that the backward kernel takes for itself until it returns: no tensor's."""
        if self.active:
            self.scratches.append((key, name))

    def flops(self, per_element: int, letters: Memory) -> None:
        """Count the operations of one execution: `2·b·s·h·f`."""
        self.tape.count(self.op, self.scope, per_element, letters)

    def output(self, x: Tensor, slot: int = 0) -> Tensor:
        """Mark a result as made by this operation."""
        if self.active:
            x.node, x.slot = self, slot
            if slot >= len(self.buffer):
                self.buffer.extend([None] * (slot + 1 - len(self.buffer)))
        return x


def kept(leaf: Tensor | None, g: Tensor | None, shared: bool = False) -> Tensor | None:
    """AccumulateGrad of a leaf: a gradient that another node gets too, or that does not lie as the leaf, is copied."""
    tape = current()
    if leaf is None or g is None:
        return g
    lies, wanted = ([letter.rstrip("'") for letter in squeezed(x.memory, tape.ones)] for x in (g, leaf))
    if lies == wanted and not shared:
        return g
    return tape.new(g.dims, g.dtype, leaf.memory, g.name)
