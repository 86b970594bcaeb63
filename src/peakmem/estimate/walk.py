"""A walk over a tape with numbers: who is alive at the peak, at each moment, of each kind.

Repeated stretches are not unrolled: inside one every amount is `first + i·delta`, so only the first repetition,
the last one, and those at a third of the layers are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from peakmem.estimate.replay import size, value
from peakmem.estimate.tape import Begin, Block, End, Phase, Place, Tape
from peakmem.immutable import immutable
from peakmem.ledger import KINDS


class Piece:
    """Events between two marks, with the places where they happen.

    block: a layer begins with them; ends: one ends. count: how often they happen in a row within their region;
    empty: once.
    """

    def __init__(self, block: bool, count: str = "") -> None:
        self.block, self.ends, self.count = block, False, count
        self.events: list[int] = []
        self.places: list[tuple[int, str]] = []

    def rest(self) -> Piece:
        """What follows at the same place."""
        piece = Piece(False)
        piece.places += [(0, path) for _, path in self.places[-1:]]
        return piece

    def place(self, at: int, tape: Tape) -> str:
        """Where event number `at` happens: the last place named before it, or where its tensor is born."""
        found = ""
        for position, path in self.places:
            if position > at:
                break
            found = path
        event = self.events[at]
        return found or (tape.records[event].scope if event >= 0 else "")


class Region:
    """Pieces that follow each other, `count` times; an empty count is once."""

    def __init__(self, count: str, pieces: list[Piece]) -> None:
        self.count, self.pieces = count, pieces


@immutable
class Spot:
    """An instant: after event `at` of a piece, in repetition `inside` of it and `turn` of its region."""

    phase: int
    region: int
    turn: int
    piece: int
    at: int
    layer: int  # layers that have begun and ended before, in this phase
    inside: int = 0


class Highest:
    """The largest amount seen so far, and where."""

    def __init__(self, bytes: int = 0, spot: Spot | None = None, by_kind: tuple[int, ...] = ()) -> None:
        self.bytes, self.spot, self.by_kind = bytes, spot, by_kind


def regions_of(tape: Tape) -> list[tuple[str, list[Region]]]:
    """The tape's events by phase, repeated region, and layer."""
    phases: list[tuple[str, list[Region]]] = []
    region = Region("", [])
    piece = Piece(False)
    depth = 0
    left = False  # a layer has ended, and nothing has been made since
    for event in tape.events:
        kind = type(event)
        if kind is int:
            if left and event >= 0:  # what goes after a layer's end still belongs to its third of the chart
                piece = piece.rest()
                region.pieces.append(piece)
            left = left and event < 0
            piece.events.append(event)
        elif kind is Place:
            piece.places.append((len(piece.events), event.path))
        elif kind is Phase:
            left = False
            region, piece = Region("", []), Piece(False)
            region.pieces.append(piece)
            phases.append((event.name, [region]))
        elif kind is Block:
            piece.ends = not event.begins
            left = not event.begins
            piece = Piece(event.begins)
            region.pieces.append(piece)
        elif (kind is Begin and depth) or (kind is End and depth > 1):  # within a repeated layer
            depth += 1 if kind is Begin else -1
            piece = Piece(False, event.times if kind is Begin else "")
            region.pieces.append(piece)
        elif kind is Begin or kind is End:
            depth = int(kind is Begin)
            region, piece = Region(event.times if kind is Begin else "", []), Piece(False)
            region.pieces.append(piece)
            phases[-1][1].append(region)
    for _, found in phases:
        for part in found:
            part.pieces = [piece for piece in part.pieces if piece.events or piece.block or piece.ends]
        found[:] = [part for part in found if part.pieces]
    return phases


class Walk:
    """Amounts as they change: live bytes, of each kind, and the highest of each."""

    def __init__(self, tape: Tape, numbers: Mapping[str, Any], kinds: list[int], rounding: int = 512) -> None:
        self.tape, self.numbers, self.kinds = tape, numbers, kinds
        cache: dict[Any, int] = {}
        self.rounded: list[int] = []
        for record in tape.records:
            if record.key not in cache:
                cache[record.key] = -(-int(size(record.key, numbers)) // rounding) * rounding
            self.rounded.append(cache[record.key])
        # Kernel scratch stands outside the total of tensors.
        self.sizes = [0 if record.scratch else size_ for record, size_ in zip(tape.records, self.rounded, strict=True)]
        self.phases = regions_of(tape)
        self.live = 0
        self.by_kind = [0] * len(KINDS)
        self.peak = Highest()
        self.kind_peaks = [Highest() for _ in KINDS]
        self.moment = Highest()

    def run(self) -> Iterator[tuple[int, int, Region]]:
        """Region by region; the caller moves through each with `turns`."""
        for i, (_, found) in enumerate(self.phases):
            for j, region in enumerate(found):
                yield i, j, region

    def times(self, part: Region | Piece) -> int:
        return int(value(part.count, self.numbers)) if part.count else 1

    def step(self, piece: Piece, spot: tuple[int, int, int, int], layer: int) -> None:
        """Go through one piece, as often as it happens."""
        times = self.times(piece)
        before = self.live, list(self.by_kind)
        if times > 0:
            self.once(piece, spot, layer, 0)
        if times > 2:
            self.skip(before, times - 2)
        if times > 1:
            self.once(piece, spot, layer, times - 1)

    def once(self, piece: Piece, spot: tuple[int, int, int, int], layer: int, turn: int) -> None:
        """Go through one repetition of a piece."""
        live, amounts = self.live, self.by_kind
        sizes, kinds, tops = self.sizes, self.kinds, self.kind_peaks
        best, best_at, best_kinds = self.moment.bytes if self.moment.spot else -1, -1, tuple(amounts)
        for at, event in enumerate(piece.events):
            if event < 0:
                live -= sizes[~event]
                amounts[kinds[~event]] -= sizes[~event]
                continue
            kind = kinds[event]
            live += sizes[event]
            amounts[kind] += sizes[event]
            if live > best:
                best, best_at, best_kinds = live, at, tuple(amounts)
            if amounts[kind] > tops[kind].bytes:
                tops[kind].bytes, tops[kind].spot = amounts[kind], Spot(*spot, at, layer, turn)
        self.live = live
        if best_at >= 0:
            self.moment = Highest(best, Spot(*spot, best_at, layer, turn), best_kinds)
        if best > self.peak.bytes and self.moment.spot:
            self.peak = self.moment

    def skip(self, before: tuple[int, list[int]], turns: int) -> None:
        """Repeat the change since `before` some more times without looking."""
        live, amounts = before
        self.live += turns * (self.live - live)
        self.by_kind = [x + turns * (x - y) for x, y in zip(self.by_kind, amounts, strict=True)]

    def begin_moment(self) -> None:
        """From here on `moment` is the highest of a new moment, what lives now included."""
        self.moment = Highest(self.live, None, tuple(self.by_kind))
