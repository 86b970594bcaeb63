"""LitGPT's chunked_cross_entropy (litgpt/utils.py): 128 tokens at a time, in the logits' own dtype.

With LoRA the head runs by chunks of 128 positions, too, and all their logits live until the loss is there
(finetune/lora.py). Without, the logits are one piece, its last position is cut off by a copy (finetune/full.py).
The position that is cut off a LoRA run's last chunk is counted.
"""

from __future__ import annotations

from collections.abc import Callable

from peakmem.estimate.layout import dims
from peakmem.estimate.node import Node
from peakmem.estimate.positions import made
from peakmem.estimate.shapes import contiguous, piece, reshape, split, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope

CHUNK = "128"


def chunked_head(m: Structure, hidden: Tensor, head: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """[lm_head(x_i) for x_i in x.split(128, dim=1)]."""
    if m.pieces == 1:
        return [head(hidden)]
    parts = split(hidden, 1, [*[CHUNK] * (m.pieces - 1), last_chunk(m, "s")])
    return [head(part) for part in parts]


def last_chunk(m: Structure, tokens: str) -> str:
    return f"{tokens}-{m.pieces - 1}*{CHUNK}"


def chunked_loss(m: Structure, logits: list[Tensor]) -> Tensor:
    """Cross-entropy of each chunk without a reduction, then one sum over all, divided by the tokens that count."""
    with scope("loss"):
        if not m.lora:
            logits = pieces_of(m, logits)
        chunks = [reshape(x, (x.dims[0] + x.dims[1], x.dims[2])) if len(x.dims) > 2 else x for x in logits]
        del logits
        losses = [each_token(chunk) for chunk in chunks]
        tokens = made("", "int64", "tokens that count")
        n = Node("cat", *losses)
        joined = n.makes(dims("(b s)"), losses[0].dtype, None, "losses")
        for i in range(len(losses)):
            n.gradient(i, "expand", dims=losses[i].dims)
        joined = n.output(joined)
        n = Node("sum", joined)
        n.gradient(0, "expand")
        total = n.output(n.makes((), joined.dtype, None, "loss"))
        n = Node("div", total)
        n.saves(tokens, "divisor of the loss")
        n.gradient(0)
        return n.output(n.makes((), total.dtype, None, "mean loss"))


def pieces_of(m: Structure, logits: list[Tensor]) -> list[Tensor]:
    """finetune/full.py: logits[..., :-1, :] in rows, split."""
    whole = contiguous(piece(logits[0], 1, "s-1"), "logits, shifted")
    rows = view(whole, "(b s-1) V")
    if m.pieces == 1:
        return [rows]
    flat_rows = Tensor((("b*(s-1)",), ("V",)), rows.dtype, ("b*(s-1)", "V"), rows.storage, True)
    n = Node("rename", rows)
    n.gradient(0, "rename", dims=rows.dims)
    flat_rows = n.output(flat_rows)
    return split(flat_rows, 0, [*[CHUNK] * (m.pieces - 1), last_chunk(m, "b*(s-1)")])


def each_token(logits: Tensor) -> Tensor:
    """F.cross_entropy(…, reduction="none"): log_softmax keeps its result, nll_loss its input."""
    n = Node("log_softmax", logits)
    logp = n.makes(logits.dims, logits.dtype, None, "log-probabilities")
    n.keeps(logp, "gradient of the logits: probabilities are exp of them")
    n.gradient(0)
    logp = n.output(logp)
    n = Node("nll_loss", logp)
    n.saves(logp, "nll_loss keeps its input")
    loss = n.makes(logits.dims[:1], logp.dtype, None, "loss of each token")
    n.gradient(0)
    return n.output(loss)
