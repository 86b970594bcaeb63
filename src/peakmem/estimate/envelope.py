"""The peak as the largest of a few sums: what makes a million settings cheap.

Every local maximum of a program is a sum of counted sizes. Most are below another whatever the numbers are, since
each of its counts is; what remains is short. In a repeated stretch a maximum counts in the first repetition and in
the last one (see replay.py).
"""

from __future__ import annotations

from functools import lru_cache

from peakmem.estimate.replay import Program, Stretch

Term = tuple[int, str]  # a size of the program, and the letter it is repeated by (empty: once)
Sum = dict[Term, int]


@lru_cache(maxsize=64)
def envelope(program: Program) -> tuple[tuple[tuple[Term, int], ...], ...]:
    """The sums of which the peak of the whole program is the largest."""
    live: Sum = {}
    found: list[Sum] = []
    for _, parts in program.phases:
        for part in parts:
            tops, delta = maxima(part, len(program.keys))
            for top in tops:
                found.append(plus(live, top, ""))
                if part.times:
                    found.append(plus(plus(plus(live, top, ""), delta, part.times), delta, "", -1))
            live = plus(live, delta, part.times)
    return tuple(tuple(sorted(total.items())) for total in undominated(found, program))


def maxima(part: Stretch, total: int) -> tuple[list[Sum], Sum]:
    """Sums wherever an allocation is followed by a free, and at the end of the stretch."""
    live: Sum = {}
    found: list[Sum] = []
    for times, steps in part.parts:
        tops, delta = counted(steps, total)
        for top in tops:
            found.append(plus(live, top, ""))
            if times:
                found.append(plus(plus(plus(live, top, ""), delta, times), delta, "", -1))
        live = plus(live, delta, times)
    return found, live


def counted(steps: tuple[int, ...], total: int) -> tuple[list[Sum], Sum]:
    """Counts by size, of each size once, wherever an allocation is followed by a free, and at the end."""
    counts: dict[Term, int] = {}
    tops: list[Sum] = []
    rising = False
    for step in steps:
        key, sign = (step, 1) if step < total else (step - total, -1)
        if sign < 0 and rising:
            tops.append(dict(counts))
        rising = sign > 0
        counts[key, ""] = counts.get((key, ""), 0) + sign
    if rising:
        tops.append(dict(counts))
    return tops, counts


def plus(live: Sum, counts: Sum, letter: str, times: int = 1) -> Sum:
    result = dict(live)
    for (size, inside), count in counts.items():
        key = size, f"({letter})*({inside})" if letter and inside else letter or inside
        result[key] = result.get(key, 0) + times * count
    return {key: count for key, count in result.items() if count}


def undominated(sums: list[Sum], program: Program) -> list[Sum]:
    """Sums that no other one reaches whatever the numbers are."""
    larger = covering({term for total in sums for term in total}, program)
    kept: list[Sum] = []
    for candidate in sorted({tuple(sorted(total.items())) for total in sums}, key=lambda t: -sum(c for _, c in t)):
        total = dict(candidate)
        if not any(below(total, other, larger) for other in kept):
            kept = [other for other in kept if not below(other, total, larger)]
            kept.append(total)
    return kept


def covering(terms: set[Term], program: Program) -> dict[Term, list[Term]]:
    """For each term those that are never smaller: wider elements of the same shape, the same one repeated."""
    found: dict[Term, list[Term]] = {}
    for term in terms:
        key, letter = program.keys[term[0]], term[1]
        if key[0] == "+" or len(key) != 2:
            continue
        found[term] = [other for other in terms if other != term and len(program.keys[other[0]]) == 2
                       and program.keys[other[0]][1] == key[1] and program.keys[other[0]][0] >= key[0]
                       and other[1] in (letter, letter or other[1])]
    return found


def below(total: Sum, other: Sum, larger: dict[Term, list[Term]]) -> bool:
    """Whether `other` is never smaller: what it has more of some term covers what it lacks of smaller ones."""
    surplus = {term: other.get(term, 0) - total.get(term, 0) for term in total.keys() | other.keys()}
    for term, count in surplus.items():
        if count >= 0:
            continue
        for bigger in larger.get(term, ()):
            spare = surplus.get(bigger, 0)
            if spare > 0:
                used = min(spare, -count)
                surplus[bigger] -= used
                count += used
                if not count:
                    break
        if count < 0:
            return False
    return True
