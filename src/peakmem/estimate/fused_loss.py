"""The head inside the loss: Liger's fused linear cross-entropy.

Mirrors liger_kernel 0.8.5 (ops/fused_linear_cross_entropy.py and transformers/model/loss_utils.py) on CUDA with
torch 2.8 or newer. The gradients of the hidden states and of the head are made in the forward pass and wait for
the backward; logits exist for z tokens at a time, z the next power of two of ⌈tokens / ⌈V/h⌉⌉. Older versions
(without `logits_storage`) hold a second piece of logits and, for each piece, up to 6·V·h bytes more.
"""

from __future__ import annotations

from peakmem.estimate.layout import dims
from peakmem.estimate.node import Node
from peakmem.estimate.ops import autocast
from peakmem.estimate.shapes import view
from peakmem.estimate.tape import Parameter, Tensor, current, scope


def fused_loss(hidden: Tensor, w: Parameter) -> Tensor:
    """LigerForCausalLMLoss: labels padded and shifted by one, then head and loss by pieces."""
    tape = current()
    with scope("loss"):
        labels = tape.new(dims("b s+1"), "int64", None, "loss/padded labels")
        shifted = labels if "b" in tape.ones else tape.new(dims("b s"), "int64", None, "loss/shifted labels")
        loss = linear_cross_entropy(view(hidden, "(b s) h"), w)
        del labels, shifted
        return loss


def linear_cross_entropy(x: Tensor, w: Parameter) -> Tensor:
    """LigerFusedLinearCrossEntropyFunction: keeps both gradients; backward only asks whether to scale them."""
    tape = current()
    n = Node("fused_linear_cross_entropy", x, w)
    n.flops(2, ("b", "s", "V", "h"))
    grad_input = n.makes(x.dims, x.dtype, None, "gradient of the hidden states")
    grad_weight = n.makes(w.dims, w.dtype, None, "gradient of the head") if w.trained else None
    losses = n.makes(dims("(b s)"), "fp32", None, "loss of each token")
    mask = n.makes(dims("(b s)"), "bool", None, "tokens that count")
    n.makes((), "int64", None, "number of tokens that count")
    if tape.autocast and x.dtype != tape.autocast:
        by_pieces(x, w)
    else:
        n.makes(dims("z V"), x.dtype, None, "logits of one piece")
    loss = n.makes((), "fp32", None, "loss")
    n.keeps(grad_input, "made in the forward pass")
    if grad_weight is not None:
        n.keeps(grad_weight, "made in the forward pass")
    for dtype in ("fp32", "bool", "bool"):  # torch.equal(grad_output, torch.tensor(1.0))
        n.works((), dtype)
    n.gradient(0, "saved")
    n.gradient(1, "saved")
    del losses, mask
    return n.output(loss)


def by_pieces(x: Tensor, w: Parameter) -> None:
    """Under autocast mm has no out=: every piece makes its logits, and 16-bit copies of what is multiplied.

    m pieces and a last one, which may be shorter. The head's copy for the second product is cached; that for the
    first, a transposed view, is made anew.
    """
    tape = current()
    enabled, tape.grad_enabled = tape.grad_enabled, False
    piece(x, w, "z")
    with tape.repeated("m-1"):
        piece(x, w, "z")
    with tape.repeated("m/j"):
        piece(x, w, "b*s-m*z")
    tape.grad_enabled = enabled


def piece(x: Tensor, w: Parameter, rows: str) -> None:
    """Logits of some rows, turned into their own gradient in place, and the two products with it."""
    tape = current()
    low = tape.autocast
    tall, wide = ((rows,), x.dims[1]), ((rows,), w.dims[0])
    head = tape.new(w.dims, low, None, f"loss/head in {low}")
    states = tape.new(tall, low, None, f"loss/hidden states of one piece in {low}")
    logits = tape.new(wide, low, None, "loss/logits of one piece")
    del head, states
    head = autocast(w)
    product = tape.new(tall, low, None, "loss/gradient of the hidden states of one piece")
    del head, product
    if w.trained:
        states = tape.new(tall, low, None, f"loss/hidden states of one piece in {low}")
        del states
    del logits
