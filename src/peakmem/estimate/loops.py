"""What a loop over tokens collects: its middle repetitions are written down once (Structure.loop)."""

from __future__ import annotations

from peakmem.estimate.layout import Dims
from peakmem.estimate.node import Node
from peakmem.estimate.shapes import shaped
from peakmem.estimate.tape import Tensor, current


class Gathered:
    """A list to which each repetition appends one tensor; they go as often as they came."""

    def __init__(self) -> None:
        self.items: list[tuple[str, Tensor]] = []

    def append(self, x: Tensor) -> None:
        self.items.append((current().loop, x))

    def clear(self) -> None:
        """The list goes: the last element first, as CPython does."""
        while self.items:
            count, x = self.items.pop()
            with current().looped(count):
                del x


def stacked(gathered: Gathered, target: Dims | str, name: str) -> Tensor:
    """torch.stack(list, -1): each one's gradient is a view of the incoming one (StackBackward0: unbind)."""
    parts = [x for _, x in gathered.items]
    n = Node("stack", *parts)
    out = n.makes(shaped(target), parts[0].dtype, None, name)
    for i in range(len(parts)):
        n.gradient(i, "unbind")
    return n.output(out)
