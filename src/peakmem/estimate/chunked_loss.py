"""Head, loss and their backward piece by piece, inside the forward pass.

Mirrors torchtitan 0.3.0's ChunkedLossWrapper around CrossEntropyLoss (components/loss.py), the default of its
llama3 recipes, on one GPU, eager: the sequence is cut into j equal chunks, each goes through the head, the loss and
its backward, and the gradients of the hidden states are collected in fp32. Labels are shifted by the data loader.
"""

from __future__ import annotations

from peakmem.estimate.autograd import backward
from peakmem.estimate.layout import dims
from peakmem.estimate.losses import cross_entropy
from peakmem.estimate.node import Node
from peakmem.estimate.ops import cast
from peakmem.estimate.positions import made
from peakmem.estimate.shapes import contiguous, piece, view
from peakmem.estimate.tape import Parameter, Tensor, current, scope
from peakmem.estimate.weights import leaf, project


def chunked_loss(hidden: Tensor, head: str, weights: Parameter | None) -> Tensor:
    """ChunkedLossWrapper.__call__: the first chunk's gradient of the head stays, the others' are added to it.

    The logits of one chunk live until the next one's replace them, its copy of the hidden states to the end.
    """
    tape = current()
    with scope("loss"):
        tokens = made("", "int64", "tokens that count")
        states = [leaf(cut(hidden))]
        with tape.repeated("j-1"):
            states.append(leaf(cut(hidden)))
        labels = [chunk_of_labels()]
        with tape.repeated("j-1"):
            labels.append(chunk_of_labels())
        buffer = made("b s h", "fp32", "gradient of the hidden states")
        total_loss = made("", "fp32", "loss so far")
    for h_chunk, label_chunk, count in zip(states, labels, ("", "j-1"), strict=True):
        with tape.repeated(count):
            logits = project(h_chunk, head, weights)
            chunk_loss = cross_entropy_loss(logits, label_chunk, tokens)
            total_loss = made("", "fp32", "loss so far")
            backward(tape, chunk_loss, nested=True)
            collect(h_chunk)
    accumulated = cast(buffer, hidden.dtype, "gradient of the hidden states")
    n = Node("chunked loss", hidden)
    n.keeps(accumulated, "made in the forward pass")
    n.gradient(0, "saved")
    loss = n.output(total_loss.detached())
    del logits, chunk_loss, h_chunk, label_chunk
    with tape.repeated("j-1"):
        del states[1:], labels[1:]
    return loss


def cut(x: Tensor) -> Tensor:
    """One of the results of split(), contiguous and detached: no copy of a single sequence, or of a single chunk."""
    target = (x.dims[0], ("s/j",), *x.dims[2:])
    if "j" in current().ones:
        return x.seen_as(target, tuple("s/j" if letter == "s" else letter for letter in x.memory))
    return contiguous(piece(x, 1, "s/j"), "hidden states of one chunk").detached()


def chunk_of_labels() -> Tensor:
    """The same for the labels, which are on the device anyway."""
    shape = dims("(b s/j)")
    if current().ones & {"b", "j"}:
        return Tensor(shape, "int64", shape[0], None)
    return made("(b s/j)", "int64", "labels of one chunk")


def cross_entropy_loss(logits: Tensor, labels: Tensor, tokens: Tensor) -> Tensor:
    """The sum over a chunk, divided by the number of tokens of the whole batch."""
    with scope("loss"):
        loss = cross_entropy(cast(view(logits, "(b s/j) V"), "fp32", "logits of one chunk in fp32"), labels)
        n = Node("div", loss)
        n.saves(tokens, "divisor of the loss")
        out = n.makes((), loss.dtype, None, "loss of one chunk")
        n.gradient(0)
        return n.output(out)


def collect(h_chunk: Tensor) -> None:
    """GradAccumulator.add: the gradient in fp32, written into its place; then it goes."""
    held = h_chunk.node.held if h_chunk.node else None
    assert held is not None, "a chunk is a leaf"
    gradient = held.pop()
    assert gradient is not None, "the head has a gradient"
    copy = cast(gradient.detached(), "fp32", "gradient of one chunk in fp32")
    del copy, gradient
