"""A tape's events one by one, repeated layers and all: for pictures of the step over time.

Where a model is so deep that there would be more than `MOST` events, the repetitions in the middle are one event,
named by their number. The amounts after it are right all the same, and so is the peak: inside a repeated stretch
every amount is `first + i·delta`, so the highest lies in the first or in the last repetition, which are shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from peakmem.estimate.account import RECIPES, SINGLE, located
from peakmem.estimate.kinds import kinds_of
from peakmem.estimate.tape import Tape
from peakmem.estimate.walk import Piece, Walk
from peakmem.ledger import KINDS

MOST = 40_000
"""Events that are shown one by one."""


class Step(NamedTuple):
    """One event. storage: index of the record; born: or freed; row: of the chart; times: how many at once;
    seen: False within repetitions that are left out, where only the sum of their changes is an amount that exists.
    """

    storage: int
    born: bool
    row: str
    moment: str
    times: int = 1
    seen: bool = True


def steps(walk: Walk, layers: int, most: int = MOST) -> Iterator[Step]:
    """Every event in order; of very deep models the middle repetitions as their change alone."""
    keep = kept(walk, most)
    for name, regions in walk.phases:
        phase, done = name.split(".")[0], 0
        for region in regions:
            times = walk.times(region)
            blocks = sum(piece.ends for piece in region.pieces)
            head = keep if times > 2 * keep + 1 else times
            turn = 0
            while turn < times:
                for piece in region.pieces:
                    yield from rounds(walk, piece, keep, phase, name, done, layers)
                    done += piece.ends
                turn += 1
                if turn == head and times > head:
                    away = times - 2 * head
                    yield from left_out(walk, region.pieces, phase, name, done, layers, away)
                    turn, done = turn + away, done + away * blocks


def kept(walk: Walk, most: int) -> int:
    """How many repetitions of each stretch are shown at its start, and again at its end."""
    sizes = [(walk.times(region), walk.times(piece), len(piece.events))
             for _, regions in walk.phases for region in regions for piece in region.pieces]
    keep = max([max(times, turns) for times, turns, _ in sizes], default=1)
    while keep > 1 and sum(min(times, 2 * keep) * min(turns, 2 * keep) * size for times, turns, size in sizes) > most:
        keep = keep * 3 // 4
    return max(keep, 1)


def rounds(walk: Walk, piece: Piece, keep: int, phase: str, name: str, done: int, layers: int) -> Iterator[Step]:
    """One piece, as often as it happens; of many times the first and the last."""
    times = walk.times(piece)
    head = keep if times > 2 * keep + 1 else times
    for _ in range(head):
        yield from events(walk, piece, phase, name, done, layers)
    if times > head:
        yield from left_out(walk, [piece], phase, name, done, layers, times - 2 * head)
        for _ in range(head):
            yield from events(walk, piece, phase, name, done, layers)


def events(walk: Walk, piece: Piece, phase: str, name: str, done: int, layers: int) -> Iterator[Step]:
    """One piece's events, with the chart's row and the moment of each."""
    number = layers - 1 - done if phase == "backward" else done
    row = row_of(phase, done, layers)
    marks = dict(piece.places)
    place = ""
    for at, event in enumerate(piece.events):
        place = marks.get(at, place)
        where = place or (walk.tape.records[event].scope if event >= 0 else "")
        yield Step(event if event >= 0 else ~event, event >= 0, row, located(name, where, str(number)))


def left_out(walk: Walk, pieces: list[Piece], phase: str, name: str, done: int, layers: int,
             away: int) -> Iterator[Step]:
    """The net change of repetitions that are not shown: what each leaves behind or takes away."""
    net: dict[int, int] = {}
    for piece in pieces:
        times = walk.times(piece) if len(pieces) > 1 else 1
        for event in piece.events:
            storage = event if event >= 0 else ~event
            net[storage] = net.get(storage, 0) + (times if event >= 0 else -times)
    row, moment = row_of(phase, done, layers), f"{name}/{away:,} repetitions left out"
    changes = [(storage, change) for storage, change in net.items() if change]
    for i, (storage, change) in enumerate(changes, 1):
        yield Step(storage, change > 0, row, moment, abs(change) * away, i == len(changes))


def row_of(phase: str, done: int, layers: int) -> str:
    """The chart's row of an event before which `done` layers have begun: thirds of the layers."""
    thirds = RECIPES.get(phase)
    if thirds is None:
        return SINGLE.get(phase, phase)
    for name, third in thirds:
        limit = layers * third // 3 if phase != "backward" else layers - layers * (3 - third) // 3
        if done < limit:
            return name
    return thirds[-1][0]


def timeline_of(tape: Tape, numbers: Mapping[str, Any], layers: int) -> tuple[tuple[str, dict[str, int]], ...]:
    """Live bytes by kind after every event."""
    walk = Walk(tape, numbers, [KINDS.index(kind) for kind in kinds_of(tape)])
    live = dict.fromkeys(KINDS, 0)
    points = []
    for step in steps(walk, layers):
        size = walk.sizes[step.storage] * step.times
        live[KINDS[walk.kinds[step.storage]]] += size if step.born else -size
        if not step.seen:
            continue
        points.append((step.moment, {kind: amount for kind, amount in live.items() if amount}))
    return tuple(points)
