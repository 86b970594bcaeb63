"""The tape as the list of requests that PyTorch's allocator would see: every layer by itself, in order.

What backward frees of equal layers it frees in reverse order, so tensors of one name are a stack.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from peakmem.estimate.replay import size, value
from peakmem.estimate.tape import Tape
from peakmem.estimate.walk import Piece, Region, regions_of

Request = tuple[int, int]  # an id, and bytes: above 0 allocate, 0 free


class Requests:
    """Requests of several tapes in a row; residents of the first stay for the others."""

    def __init__(self, numbers: Mapping[str, Any]) -> None:
        self.numbers = numbers
        self.list: list[Request] = []
        self.alive: dict[tuple[Any, ...], list[int]] = {}
        self.next = 0

    def take(self, tape: Tape, phases: slice) -> None:
        """Append the events of some phases of a tape."""
        sizes: dict[Any, int] = {}
        for record in tape.records:
            if record.key not in sizes:
                sizes[record.key] = int(size(record.key, self.numbers))
        for _, regions in regions_of(tape)[phases]:
            for region in regions:
                for events in self.turns(region):
                    self.run(tape, events, sizes)

    def extra(self, bytes_: int) -> None:
        """A request that nothing frees."""
        if bytes_:
            self.list.append((self.next, bytes_))
            self.next += 1

    def number(self, tape: Tape) -> int:
        """How many requests a tape makes."""
        return sum(self.times(region) * self.times(piece) * len(piece.events)
                   for _, regions in regions_of(tape) for region in regions for piece in region.pieces)

    def turns(self, region: Region) -> Iterator[list[int]]:
        events = [event for piece in region.pieces for event in piece.events * self.times(piece)]
        for _ in range(self.times(region)):
            yield events

    def times(self, part: Region | Piece) -> int:
        return int(value(part.count, self.numbers)) if part.count else 1

    def run(self, tape: Tape, events: list[int], sizes: Mapping[Any, int]) -> None:
        records, alive, requests = tape.records, self.alive, self.list
        for event in events:
            record = records[event if event >= 0 else ~event]
            wanted = sizes[record.key]
            if not wanted:
                continue
            if event >= 0:
                alive.setdefault((record.name, record.key), []).append(self.next)
                requests.append((self.next, wanted))
                self.next += 1
                continue
            found = alive.get((record.name, record.key)) or self.equal(record.key)
            requests.append((found.pop(), 0))

    def equal(self, key: Any) -> list[int]:
        """A living tensor of the same size: inside a fold one layer's tensor may stand for its neighbour's."""
        return next(ids for (_, other), ids in self.alive.items() if other == key and ids)
