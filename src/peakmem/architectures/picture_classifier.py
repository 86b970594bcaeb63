"""A head on a network for pictures: one class for each, and the loss. Every …ForImageClassification ends like this."""

from __future__ import annotations

from collections.abc import Callable

from peakmem.estimate.losses import cross_entropy, total
from peakmem.estimate.outputs import hand_out
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope

INPUTS = {"pixel_values": ("b c i i'", ""), "labels": ("b", "int64")}
LOSSES = ("upcast", "sum")
GENERATES = False


def classified(m: Structure, run: Callable[[], tuple[Tensor, ...]], labels: Tensor | None) -> Tensor:
    """The loss, or in inference the logits. run: gives the logits, and what the class holds until it returns."""
    logits, *held = run()
    if m.run == "inference":
        return logits
    hand_out(logits)
    if labels is None:
        del held  # the sum is made outside the model
        return total(logits)
    with scope("loss"):
        return cross_entropy(logits, labels)
