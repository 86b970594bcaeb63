"""The loss as older versions of transformers have it, and cross-entropy that writes the gradient over the logits."""

from __future__ import annotations

from peakmem.estimate.layout import dims
from peakmem.estimate.losses import cross_entropy
from peakmem.estimate.node import Node
from peakmem.estimate.ops import cast
from peakmem.estimate.shapes import contiguous, piece, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, current, scope
from peakmem.tables.stacks import OWN_DTYPE


def older_loss(m: Structure, logits: Tensor) -> Tensor:
    """Logits in fp32, all but the last position copied to memory of their own, labels likewise.

    Source: transformers 4.48.1 loss/loss_utils.py; 4.45.2 has the same lines in every model.
    """
    tape = current()
    if m.architecture not in OWN_DTYPE or not m.has("shifted_logits"):
        logits = cast(logits, "fp32", "logits in fp32")
    with scope("loss"):
        if not m.has("shifted_logits"):
            padded = tape.new(dims("b s+1"), "int64", None, "loss/padded labels")
            labels = padded if "b" in tape.ones else tape.new(dims("b s"), "int64", None, "loss/shifted labels")
            return judged(m, view(logits, "(b s) V"), labels)
        shifted = contiguous(piece(logits, 1, "s-1"), "shifted logits")
        labels = tape.new(dims("b s-1"), "int64", None, "loss/shifted labels")
        return judged(m, view(shifted, "(b s-1) V"), labels)


def judged(m: Structure, logits: Tensor, labels: Tensor) -> Tensor:
    return inplace_cross_entropy(logits, labels) if m.loss == "inplace" else cross_entropy(logits, labels)


def inplace_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Unsloth's Fast_CrossEntropyLoss: keeps logits and one logsumexp a row; backward turns them into their gradient.

    Source: unsloth kernels/cross_entropy_loss.py; Liger's cross_entropy.py does it in the forward already.
    """
    n = Node("inplace cross entropy", logits)
    n.saves(logits, "the gradient is computed from them, and written over them")
    losses = n.makes(logits.dims[:1], "fp32", None, "loss of each token")
    n.keeps(n.makes(logits.dims[:1], "fp32", None, "logsumexp"), "probabilities are exp(logits − logsumexp)")
    n.saves(labels, "by which logit each row is judged")
    loss = n.makes((), "fp32", None, "loss")
    n.gradient(0, "saved")
    del losses
    return n.output(loss)
