"""Where a backward pass stands: in which fold, which layer, which loop; it writes where they begin and end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from peakmem.estimate.tape import Begin, Block, End, Place, Tape

if TYPE_CHECKING:
    from peakmem.estimate.node import Node


class Marks:
    """nested: the pass runs inside a forward pass, and belongs to the stretch that is being written there."""

    def __init__(self, tape: Tape, nested: bool) -> None:
        self.tape, self.nested = tape, nested
        self.outer = tape.scope, tape.fold, tape.layer
        self.fold = self.layer = self.loop = ""
        self.stretch = max(tape.ran, default=-1) + 1

    def go_to(self, node: Node) -> None:
        """The next events are this node's."""
        tape, events = self.tape, self.tape.events
        if self.loop and (node.loop, node.layer) != (self.loop, self.layer):
            events.append(End())
            self.loop = ""
        if not self.nested and (node.fold != self.fold or node.layer != self.layer):
            if self.layer:
                events.append(Block(False))
            other = node.fold != self.fold
            if other and self.fold:
                events.append(End())
            if node.layer:
                self.pass_over(int(node.layer.partition(".")[0]))
            if other and node.fold:
                events.append(Begin(node.fold))
            self.fold, self.layer = tape.fold, tape.layer = node.fold, node.layer
            if self.layer:
                events.append(Block(True))
        if node.loop and not self.loop:
            self.loop = node.loop
            events.append(Begin(self.loop))
        tape.scope, tape.loop = node.scope, self.loop
        events.append(Place(f"{node.scope}/{node.op}"))

    def pass_over(self, stretch: int) -> None:
        """Layers that no gradient reaches have a place in the order all the same."""
        for number in range(self.stretch - 1, stretch, -1):
            if number not in self.tape.ran:
                continue
            skipped = self.tape.ran[number]
            for copy in skipped.copies:
                count, layers = skipped.count(copy), [Block(True), Block(False)] * len(skipped.kinds)
                self.tape.events += [Begin(count), *layers, End()] if count else layers
        self.stretch = min(self.stretch, stretch)

    def close(self) -> None:
        """The pass is over."""
        for open_, mark in ((self.loop, End()), (self.layer, Block(False)), (self.fold, End())):
            if open_:
                self.tape.events.append(mark)
        self.tape.loop = ""
        self.tape.scope, self.tape.fold, self.tape.layer = self.outer if self.nested else ("", "", "")
