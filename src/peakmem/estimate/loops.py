"""What a loop over tokens collects: its middle repetitions are written down once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from peakmem.estimate.layout import Dims
from peakmem.estimate.node import Node
from peakmem.estimate.shapes import shaped
from peakmem.estimate.tape import Begin, End, Tensor, current


@contextmanager
def looped(count: str) -> Iterator[None]:
    """What happens inside happens `count` times in a row within its layer; an empty count is once."""
    if not count:
        yield
        return
    tape = current()
    tape.loop = count
    tape.events.append(Begin(count))
    yield
    tape.events.append(End())
    tape.loop = ""


def steps(pieces: int, letter: str) -> Iterator[None]:
    """A loop of that many steps in a row: the first, those between, which one stands for, and the last.

    pieces: how many are written down; not folded (more than three), each is one.
    """
    for i in range(pieces):
        with looped(f"{current().letters.get(letter, letter)}-2" if i == 1 and pieces == 3 else ""):
            yield


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
            with looped(count):
                del x


def stacked(gathered: Gathered, target: Dims | str, name: str) -> Tensor:
    """torch.stack(list, -1): each one's gradient is a view of the incoming one (StackBackward0: unbind)."""
    parts = [x for _, x in gathered.items]
    n = Node("stack", *parts)
    out = n.makes(shaped(target), parts[0].dtype, None, name)
    for i in range(len(parts)):
        n.gradient(i, "unbind")
    return n.output(out)
