"""The head and the loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import groupby

from peakmem.estimate.inference import last_position
from peakmem.estimate.layout import dims
from peakmem.estimate.node import Node
from peakmem.estimate.ops import autocast_fp32, cast, scale, tanh
from peakmem.estimate.outputs import hand_out
from peakmem.estimate.shapes import view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Parameter, Tensor, current, scope
from peakmem.estimate.weights import project, weight
from peakmem.tables.stacks import OWN_DTYPE

LOSS_NOTES: Mapping[str, tuple[str, ...]] = {
    "fused": ("fused loss: Liger's fused linear cross-entropy, liger_kernel 0.8.5 on torch 2.8 or newer; older "
              "versions hold a second piece of logits and, for a moment, up to 6 bytes more per weight of the head",),
    "chunked": ("chunked loss: torchtitan 0.3.0's ChunkedLossWrapper, which runs head, loss and backward chunk by "
                "chunk in the forward pass; torchtune's keeps the logits of all chunks until backward",),
}
"""What a loss that has many forms elsewhere mirrors here."""


def causal_lm(m: Structure, run: Callable[[], Tensor], embedding: str, head: str = "lm_head",
              extra: Callable[[Tensor | None], Tensor] | None = None, casts: bool = False) -> Tensor:
    """A decoder with a head: `run` gives the last hidden states; extra: the loss with what is added to it, or what
    would be, where the model makes no loss.

    casts: the head's input is cast to the dtype of its weight.
    """
    hidden = last_position(m, run())
    if m.loss in ("fused", "chunked") and m.run == "training":
        loss = head_in_loss(m, hidden, head, tied_to(m, embedding))
        return loss if extra is None else extra(loss)
    logits = project(cast(hidden, m.dtype) if casts else hidden, head, tied_to(m, embedding))
    if m.has("scaled_logits"):
        logits = scale(logits, "logits, scaled")
    if m.has("logit_softcap"):
        logits = scale(logits, "logits, scaled down")
        logits = tanh(logits)
        logits = scale(logits, "logits, capped")
    if m.has("float_logits") and m.architecture not in OWN_DTYPE:
        logits = cast(logits, "fp32", "logits in fp32")
    if m.run == "inference":
        return logits
    if m.loss == "sum":
        before = current().sequence
        apart = extra(None) if extra is not None else None  # what the model returns beside its logits
        hand_out(logits)
        del hidden  # the sum is made outside the model
        loss = total(logits)
        forget(apart, before)
        return loss
    hand_out(logits)
    if m.loss == "inplace" or m.has("shifted_logits"):
        from peakmem.estimate.older_losses import older_loss

        loss = older_loss(m, logits)
    else:
        loss = causal_lm_loss(logits)
    return loss if extra is None else extra(loss)


def forget(unused: Tensor | None, before: int) -> None:
    """Let go what was made after node `before` for a result that nobody differentiates, in the folds of its layers."""
    tape = current()
    waiting = [unused.node] if unused is not None and unused.node is not None else []
    found: dict[int, Node] = {}
    while waiting:
        node = waiting.pop()
        if id(node) not in found:
            found[id(node)] = node
            waiting += [e.target for e in node.edges if e and isinstance(e.target, Node) and e.target.sequence > before]
    for fold, nodes in groupby(sorted(found.values(), key=lambda node: -node.sequence), key=lambda node: node.fold):
        with tape.repeated(fold):
            for node in nodes:
                node.saved = []


def head_in_loss(m: Structure, hidden: Tensor, head: str, tied: Parameter | None) -> Tensor:
    """The losses that run the head themselves."""
    from peakmem.estimate.chunked_loss import chunked_loss
    from peakmem.estimate.fused_loss import fused_loss

    if m.loss == "chunked":
        return chunked_loss(hidden, head, tied)
    if tied is not None:
        return fused_loss(hidden, tied)
    with scope(head):
        w = weight("weight")
    return fused_loss(hidden, w)


def tied_to(m: Structure, embedding: str) -> Parameter | None:
    """The embedding matrix, where the head shares it."""
    if not m.has("tied"):
        return None
    tape = current()
    found = tape.parameters[f"{embedding}.weight"]
    if tape.fetch is not None:
        tape.fetch(found)
    return found


def total(x: Tensor) -> Tensor:
    """sum() of everything: the gradient is expanded, so it needs no memory of its own (SumBackward0).

    Autocast asks for an fp32 result, without a copy of the input (fp32_set_opt_dtype).
    """
    leave = current().leave
    if leave is not None:
        leave(x)
    n = Node("sum", x)
    out = n.makes((), "fp32" if current().autocast else x.dtype, None, "loss")
    n.gradient(0, "expand")
    return n.output(out)


def squared_error(predicted: Tensor, wanted: Tensor) -> Tensor:
    """F.mse_loss(predicted.float(), wanted.float()): keeps both; its result lies in memory for every difference.

    Source: derivatives.yaml, mse_loss; aten/src/ATen/native/Loss.cpp.
    """
    predicted, wanted = cast(predicted, "fp32", "prediction in fp32"), cast(wanted, "fp32", "target in fp32")
    n = Node("mse_loss", predicted)
    n.saves(predicted, "slope of the squared error")
    n.saves(wanted, "slope of the squared error")
    out = n.makes(predicted.dims, "fp32", None, "loss")
    n.makes(predicted.dims, "fp32", None, "squared differences")  # before they are reduced
    n.gradient(0)
    return n.output(out.seen_as(()))


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """F.cross_entropy on (rows, V): log_softmax keeps its result, nll_loss its input, the labels and a total.

    Both gradients exist together with the log-probabilities (LogSoftmaxBackward0, NllLossBackward0). Under
    autocast log_softmax and nll_loss are on the fp32 list each.
    """
    n = Node("log_softmax", logits)
    logp = n.makes(logits.dims, logits.dtype, None, "log-probabilities")
    n.keeps(logp, "gradient of the logits: probabilities are exp of them")
    n.gradient(0)
    logp = autocast_fp32(n.output(logp))
    n = Node("nll_loss", logp)
    n.saves(logp, "nll_loss keeps its input")
    n.saves(labels, "by which logit each row is judged")
    loss = n.makes((), logp.dtype, None, "loss")
    n.keeps(n.makes((), logp.dtype, None, "total weight"), "divisor of the mean")
    n.gradient(0)
    return n.output(loss)


def causal_lm_loss(logits: Tensor) -> Tensor:
    """transformers' ForCausalLMLoss: logits in fp32, labels padded and shifted by one."""
    tape = current()
    with scope("loss"):
        logits = cast(logits, "fp32", "logits in fp32")
        labels = tape.new(dims("b s+1"), "int64", None, "loss/padded labels")
        shifted = labels if "b" in tape.ones else tape.new(dims("b s"), "int64", None, "loss/shifted labels")
        return cross_entropy(view(logits, "(b s) V"), shifted)
