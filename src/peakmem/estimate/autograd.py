"""Autograd's own algorithm over tensors without numbers.

Sources: PyTorch 2.13, torch/csrc/autograd/engine.cpp (evaluate_function, validate_outputs),
input_buffer.cpp (accumulate), functions/accumulate_grad.h. What matters to memory:

- nodes run by descending sequence number, AccumulateGrad at once when its last gradient has arrived;
- gradients are computed, then each is summed to the input's shape, then cast to its dtype, all with the
  incoming gradient and the saved tensors alive; recomputed tensors have gone by then;
- then incoming gradients and saved tensors go, and only then are the results handed on;
- two gradients that meet are added in place, unless the first is a view or somebody else holds it.
"""

from __future__ import annotations

from sys import getrefcount
from typing import Any

from peakmem.estimate.layout import (
    GAP,
    Dims,
    Memory,
    channels_last,
    dense_order,
    flat,
    is_contiguous,
    is_dense,
    is_one,
    viewable,
)
from peakmem.estimate.marks import Marks
from peakmem.estimate.node import Edge, Node, kept
from peakmem.estimate.scratch import dense_for_product
from peakmem.estimate.tape import Parameter, Tape, Tensor

ALONE = (lambda x: getrefcount(x))(object())  # what one holder counts as: 2; where Python lends arguments (3.14), 1


def release(saved: list[Any]) -> list[Tensor]:
    """The saved tensors themselves; what was promised is computed again."""
    return [x.unpack() if not isinstance(x, Tensor) else x for x in saved]


def compute(tape: Tape, node: Node, grads: list[Tensor | None]) -> list[Tensor | None]:
    """Run the backward formula of one node: what it makes, in its order."""
    if node.formula is not None:
        own: list[Tensor | None] = node.formula(tape, grads)
        return own
    unpacked = release(node.saved)
    scratch = [tape.new((), "uint8", None, f"{node.scope}/{name}", key, True) for key, name in node.scratches]
    results: list[Tensor | None] = [None] * len(node.edges)
    held: list[Tensor] = []
    label = f"{node.scope}/{node.op}"
    for line in node.gradients:
        g = grads[line.slot]
        if g is None:
            continue
        if line.how == "pass":
            results[line.edge] = g
            continue
        if line.how in ("reshape", "permute", "expand"):
            results[line.edge] = reshaped(tape, g, line.dims) if line.how == "reshape" else g.seen_as(line.dims)
            continue
        if line.how == "contiguous":
            same = is_contiguous(g.dims, g.memory, tape.ones)
            results[line.edge] = g if same else tape.new(g.dims, g.dtype, None, g.name)
            continue
        if line.how == "clone":
            results[line.edge] = tape.new(line.dims, g.dtype, cloned(g, line.dims, tape.ones), g.name)
            continue
        if line.how == "dense":
            if not is_contiguous(g.dims, g.memory, tape.ones):
                held.append(tape.new(g.dims, g.dtype, None, f"{label}: incoming gradient, contiguous"))
            continue
        if line.how == "saved":
            results[line.edge] = unpacked[line.edge]
            continue
        if line.how in ("narrow", "rename"):
            results[line.edge] = narrowed(g, line.dims, line.how == "narrow")
            continue
        if line.how == "unbind":
            results[line.edge] = g.seen_as(line.dims, tuple(GAP if x in g.dims[-1] else x for x in g.memory))
            continue
        name = f"{label}: backward work" if line.edge < 0 else f"{node.edges[line.edge].name} gradient"
        short = [tape.new(dims, dtype, None, f"{label}: backward temporary {i}")
                 for i, (dims, dtype) in enumerate(line.temporaries, 1)]
        short += dense_for_product(tape, node.op, g, label)
        memory: Any = dense_order(line.dims, g.memory) if line.memory == "grad" else line.memory
        if line.how == "join":
            memory = joined_order(line.dims, grads, tape.ones)
        shape = g if g.dims == line.dims else Tensor(line.dims, line.dtype, flat(line.dims), None)
        alive = pass_through(tape, line.steps, shape, label) if line.steps else {}
        made = tape.new(line.dims, line.dtype, None if line.how == "rows" else memory, name)
        alive.clear()
        if line.how == "rows":  # each row is longer than the gradient needs
            made = made.seen_as(node.edges[line.edge].dims, memory)
        made.view = line.view
        if line.edge < 0:
            held.append(made)
        else:
            results[line.edge] = made
        del short, made
    del unpacked, held, scratch
    return results


def pass_through(tape: Tape, steps: str, x: Tensor, label: str) -> dict[str, Tensor]:
    """Tensors like x that are born (`+name`) and die (`-name`) in this order; returns those still alive."""
    alive: dict[str, Tensor] = {}
    for step in steps.split():
        if step[0] == "+":
            alive[step[1:]] = tape.new(x.dims, x.dtype, dense_order(x.dims, x.memory), f"{label}: {step[1:]}")
        else:
            del alive[step[1:]]
    return alive


def reshaped(tape: Tape, g: Tensor, target: Dims) -> Tensor:
    """A gradient under another shape of the same letters: a view where its strides allow, else a copy.

    The target may order the letters otherwise: then it is transposed first, which costs nothing.
    """
    if g.dims == target or viewable(g.memory, target, tape.ones):
        return g.seen_as(target)
    return tape.new(target, g.dtype, None, g.name)


def joined_order(target: Dims, grads: list[Tensor | None], ones: frozenset[str]) -> Memory | None:
    """The memory of cat: channels last where all its parts are (TensorShape.cpp, cat_compute_output_memory_format)."""
    if all(g is not None and channels_last(g.dims, g.memory, ones) for g in grads):
        n, c, h, w = target
        return n + h + w + c
    return None


def cloned(g: Tensor, target: Dims, ones: frozenset[str]) -> Memory:
    """The memory of a clone, dense and in the order of the gradient, where one dimension has other letters."""
    new: dict[str, Memory] = {}
    for old, wanted in zip(g.dims, target, strict=True):
        if old != wanted:
            new |= dict.fromkeys(old, ())
            new[next((letter for letter in old if letter not in ones), old[0])] = wanted
    return tuple(x for letter in g.memory if letter != GAP for x in new.get(letter, (letter,)))


def narrowed(g: Tensor, target: Dims, sliced: bool) -> Tensor:
    """A slice of a gradient, as a view; or all of it, under other letters."""
    memory: list[str] = []
    swap = {old[0]: new for old, new in zip(g.dims, target, strict=True) if old != new}
    gone = {letter for old, new in zip(g.dims, target, strict=True) if old != new for letter in old[1:]}
    for letter in g.memory:
        if letter in swap:
            memory += [GAP, *swap[letter]] if sliced else swap[letter]
        elif letter not in gone:
            memory.append(letter)
    return g.seen_as(target, tuple(memory))


def fit(tape: Tape, results: list[Any], i: int, edge: Edge) -> None:
    """Give a gradient the shape and then the dtype of the input it belongs to (validate_outputs).

    Works on the list, so that nothing else holds what is replaced.
    """
    if results[i].dims != edge.dims and summed(results[i].dims, edge.dims, tape.ones):
        fewer = len(edge.dims) < len(results[i].dims)  # sum_to of ExpandUtils.h keeps them, then takes a view
        results[i] = tape.new(edge.dims, results[i].dtype, None, f"{edge.name} gradient")
        results[i].view = fewer
    if results[i].dtype != edge.dtype:
        memory = dense_order(results[i].dims, results[i].memory)
        results[i] = tape.new(results[i].dims, edge.dtype, memory, f"{edge.name} gradient")


def summed(given: Dims, wanted: Dims, ones: frozenset[str]) -> bool:
    """Whether sum_to_size has something to sum: a further dimension, even of size one, or a broadcast one."""
    if len(given) != len(wanted):
        return True
    return any(is_one(w, ones) and not is_one(g, ones) for g, w in zip(given, wanted, strict=True))


def meet(tape: Tape, buffer: list[Tensor | None], slot: int, g: Tensor, out_of_place: bool = False) -> None:
    """Add a gradient to those that have arrived (InputBuffer::accumulate)."""
    old = buffer[slot]
    if old is None:
        buffer[slot] = g
        return
    # The list and `old` hold it; a third holder is another edge of the graph.
    if out_of_place or old.view or getrefcount(old) > ALONE + 1 or not is_dense(old.dims, old.memory, tape.ones):
        buffer[slot] = tape.new(old.dims, old.dtype, dense_order(old.dims, old.memory), old.name)


def accumulate(tape: Tape, p: Parameter, g: Tensor, shared: bool) -> None:
    """AccumulateGrad: the first gradient is kept as it is, later ones are added in place.

    Megatron's hook then adds it to its own buffer and drops it.
    """
    if p.arrived is not None:
        holder: list[Tensor | None] = [p.arrived]
        p.arrived = None
        meet(tape, holder, 0, g)
        g, shared = holder[0], False  # type: ignore[assignment]
        del holder
    p.waiting -= 1
    if p.waiting > 0:
        p.arrived = g
        return
    if p.grad is None:
        if shared or not is_contiguous(g.dims, g.memory, tape.ones):
            g = tape.new(g.dims, g.dtype, None, g.name)
        if g.storage:
            g.storage.record.kind = "gradients"
            g.storage.record.name = f"{p.full_name} gradient"
        p.grad = None if tape.drops_gradients else g
    if tape.arrived is not None:
        tape.arrived(p)


def reachable(tape: Tape, root: Node) -> list[Node]:
    """The nodes below one, in the order in which backward runs them; counts what each parameter waits for."""
    seen = {id(root)}
    found = [root]
    for node in found:
        for edge in node.edges:
            if edge is None:
                continue
            target = edge.target
            target.waiting += 1
            if not isinstance(target, Parameter) and id(target) not in seen:
                seen.add(id(target))
                found.append(target)
    found.sort(key=lambda node: -node.sequence)
    return found


def run_node(tape: Tape, node: Node) -> None:
    """Backward of one node, and delivery of what it made."""
    grads, node.buffer = node.buffer, [None] * len(node.buffer)
    if node.hook is not None:
        node.hook()
    if node.incoming is not None and grads[0] is not None:
        grads[0] = reshaped(tape, grads[0], node.incoming)
    if node.held is not None:
        node.held.append(kept(node.held[0], grads[0]))
    results = compute(tape, node, grads)
    for i, edge in enumerate(node.edges):
        if results[i] is not None:
            fit(tape, results, i, edge)
    grads.clear()
    node.saved = []
    for i in node.deliver or range(len(results)):
        g, results[i] = results[i], None
        if g is None:
            continue
        edge = node.edges[i]
        target, shared = edge.target, getrefcount(g) > ALONE or id(g) in map(id, results)
        if isinstance(target, Parameter):
            accumulate(tape, target, g, shared)
        else:
            meet(tape, target.buffer, edge.slot, g, target.op == "dtensor")
            target.waiting -= 1
            if target.held is not None and not target.waiting:  # AccumulateGrad runs at once here, too
                shared &= target.buffer[0] is g
                del g
                target.held.append(kept(target.held[0], target.buffer.pop(), shared))
                target.buffer.append(None)
                continue
        del g


def backward(tape: Tape, loss: Tensor, callbacks: list[Any] | None = None, nested: bool = False) -> None:
    """loss.backward(): every node below the loss, folded layers and loops as such. The seed gradient lives to the end.

    nested: it runs inside a forward pass, and belongs to the stretch that is being written there.
    """
    assert loss.node is not None, "the loss depends on no trained parameter"
    seed = tape.new(loss.dims, loss.dtype, None, "loss gradient")
    order = reachable(tape, loss.node)
    loss.node.buffer[loss.slot] = seed
    marks = Marks(tape, nested)
    order.reverse()
    while order:
        node = order.pop()
        if all(g is None for g in node.buffer):
            continue
        marks.go_to(node)
        run_node(tape, node)
        del node
    marks.close()
    for callback in callbacks or ():
        callback()
