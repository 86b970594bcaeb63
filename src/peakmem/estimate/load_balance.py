"""The auxiliary loss of routers: load_balancing_loss_func of models/mixtral/modeling_mixtral.py (transformers 5.24)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from peakmem.errors import Impossible
from peakmem.estimate.experts import topk
from peakmem.estimate.layout import dims
from peakmem.estimate.node import Node
from peakmem.estimate.ops import add, cast, mul, scale, softmax, total_over
from peakmem.estimate.positions import made
from peakmem.estimate.shapes import view
from peakmem.estimate.tape import Tensor, current


def each(kept: list[Tensor]) -> Iterator[Tensor]:
    """The logits of every interpreted layer, those of repeated ones inside their fold."""
    for fold, group in groupby(kept, key=fold_of):
        with current().repeated(fold):
            yield from group


def fold_of(x: Tensor) -> str:
    return x.storage.record.fold if x.storage else ""


def load_balancing_loss(kept: list[Tensor]) -> Tensor:
    """Layer by layer: how many tokens each expert got, and the sum of its probabilities; then their product.

    The variables of one layer live until the next one's replace them. Errors: Impossible.
    """
    if not kept:
        raise Impossible("output_router_logits: no layer has experts, and transformers' auxiliary loss fails there; "
                         "train without it, or with more layers")
    tokens = made("E", "fp32", "tokens per expert")
    chances = made("E", "fp32", "probability per expert")
    for logits in each(kept):
        routing_weights = softmax(logits)
        values, selected = topk(routing_weights, "K")
        tokens = counted(tokens)
        chances = add(chances, total_over(cast(routing_weights, "fp32"), 0), "probability per expert")
    tokens_per_expert = made("E", "fp32", "share of tokens")
    chance_per_expert = scale(chances, "mean probability")
    loss = total(mul(tokens_per_expert, view(chance_per_expert, "1 E")))
    loss = scale(loss, "auxiliary loss")
    del tokens, chances, routing_weights, values, selected, logits
    return loss


def counted(tokens: Tensor) -> Tensor:
    """tokens + histc(selected experts)."""
    numbers = made("(b s K)", "int32", "chosen experts in int32")
    histogram = made("E", "int32", "tokens per expert")
    del numbers
    result = made("E", "fp32", "tokens per expert")
    del histogram
    return result


def total(x: Tensor) -> Tensor:
    """sum() of everything (SumBackward0)."""
    n = Node("sum", x)
    out = n.makes((), x.dtype, None, "sum")
    n.gradient(0, "expand")
    return n.output(out)


def added(loss: Tensor, auxiliary: Tensor) -> Tensor:
    """loss += coefficient * auxiliary: in the loss's own memory; both get the gradient itself."""
    part = scale(auxiliary, "auxiliary loss, scaled")
    n = Node("add_", loss, part)
    n.gradient(1, "pass")
    n.gradient(0, "pass")
    return n.output(loss.seen_as(dims("()")))


def release(kept: list[Tensor]) -> None:
    """Let the logits go, those of repeated layers as often as they were made."""
    while kept:
        with current().repeated(fold_of(kept[-1])):
            kept.pop()
