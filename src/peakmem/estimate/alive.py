"""Who is alive at an instant, and how often: counts by letters, from a walk's repeated regions."""

from __future__ import annotations

from peakmem.estimate.formulas import Count, add
from peakmem.estimate.walk import Piece, Region, Spot, Walk


def counts_until(walk: Walk, spot: Spot | None) -> dict[int, Count]:
    """How often every storage is alive at an instant, by letters."""
    counts: dict[int, Count] = {}
    for i, (_, regions) in enumerate(walk.phases):
        for j, region in enumerate(regions):
            here = spot is not None and (i, j) == (spot.phase, spot.region)
            times = walk.times(region)
            for k, piece in enumerate(region.pieces):
                rounds = walk.times(piece)
                each = turn_count(piece, rounds, rounds)
                tally(counts, piece.events, product(turn_count(region, times, spot.turn if spot and here else times),
                                                    each))
                if here and spot is not None and k < spot.piece:
                    tally(counts, piece.events, each)
                elif here and spot is not None and k == spot.piece:
                    tally(counts, piece.events, turn_count(piece, rounds, spot.inside))
                    tally(counts, piece.events[:spot.at + 1], {"": 1})
            if here:
                return counts
    return counts


def turn_count(region: Region | Piece, times: int, turns: int) -> Count:
    """A number of repetitions, in letters where it is all of them or all but the last."""
    count: Count = {}
    if region.count and turns == times:
        add(count, region.count, 1)
    elif region.count and turns == times - 1 and turns:
        add(count, region.count, 1)
        add(count, "", -1)
    elif turns:
        add(count, "", turns)
    return count


def product(outer: Count, inner: Count) -> Count:
    """How many in all: so many times so many."""
    count: Count = {}
    for letter, times in outer.items():
        for other, turns in inner.items():
            both = f"{letter}*{other}" if letter and other else letter or other
            count[both] = count.get(both, 0) + times * turns
    return count


def tally(counts: dict[int, Count], events: list[int], by: Count) -> None:
    if not by:
        return
    for event in events:
        count = counts.setdefault(event if event >= 0 else ~event, {})
        sign = 1 if event >= 0 else -1
        for letter, times in by.items():
            count[letter] = count.get(letter, 0) + sign * times
