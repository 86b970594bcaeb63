"""Whether a tape books every storage under one kind from birth to death, and the structure whose tape does.

A repeated layer frees what the one before it made, so on the tape the first copy's output dies once for every
repetition, and the repeated copy's but once. The sums are right; the kinds are, if both copies are of one kind. They
are not where the last layer's output is kept for another reason than the others': a sum in fp32 that only the last
norm keeps, or a stage's end that is cast. Then the last repetition is interpreted by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from peakmem.estimate.interpret import interpret
from peakmem.estimate.kinds import kinds_of
from peakmem.estimate.replay import value
from peakmem.estimate.structure import Segment, Structure
from peakmem.estimate.tape import Begin, End, Tape
from peakmem.immutable import replace


def booked(structure: Structure, numbers: Mapping[str, Any]) -> Structure:
    """The structure itself, or with every stretch's last repetition apart, if kinds need it."""
    if balances(structure):
        return structure
    return replace(structure, segments=tuple(with_last(segment, int(value(segment.letter, numbers)))
                                             for segment in structure.segments))


@lru_cache(maxsize=256)
def balances(structure: Structure) -> bool:
    return is_balanced(interpret(structure))


def is_balanced(tape: Tape) -> bool:
    """Whether of no kind more storages of one size die than are born, however often layers are repeated."""
    kinds = kinds_of(tape)
    net: Counter[tuple[str, Any, tuple[str, ...]]] = Counter()
    for folds, born, dead in stretches_of(tape):
        for storages, sign in ((born - dead, 1), (dead - born, -1)):
            for storage in storages:
                net[kinds[storage], tape.records[storage].key, folds] += sign
    return min(net.values(), default=0) >= 0


def stretches_of(tape: Tape) -> Iterator[tuple[tuple[str, ...], set[int], set[int]]]:
    """What is born and what dies between two marks of repetition, and how often that happens."""
    folds: tuple[str, ...] = ()
    born: set[int] = set()
    dead: set[int] = set()
    for event in tape.events:
        kind = type(event)
        if kind is int:
            if event >= 0:
                born.add(event)
            else:
                dead.add(~event)
        elif kind is Begin or kind is End:
            yield folds, born, dead
            born, dead = set(), set()
            folds = (*folds, event.times) if kind is Begin else folds[:-1]
    yield folds, born, dead


def with_last(segment: Segment, times: int) -> Segment:
    """The same stretch with its last repetition apart."""
    if "body" not in segment.copies or "last" in segment.copies:
        return segment
    copies = (*segment.copies, "last")
    return replace(segment, copies=copies if times >= len(copies) else tuple(x for x in copies if x != "body"))
