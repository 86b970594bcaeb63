"""Lines of two producers that call things by different names: which of them are the same tensors.

An estimate says `mlp.gate_proj/output`, a trace `mlp.gate_proj/mm`. Lines of one size are the same: first those of one
name, then those of one module, then any, and last those of another kind (the totals of kinds are compared by
themselves). What remains is in only one of the two.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

from peakmem.ledger import Ledger, Line

Key = Callable[[Line], Hashable]
WAYS: tuple[Key, ...] = (
    lambda line: (line.name, line.kind, line.bytes, line.scratch),
    lambda line: (line.name.partition("/")[0], line.kind, line.bytes, line.scratch),
    lambda line: (line.kind, line.bytes, line.scratch),
    lambda line: (line.bytes, line.scratch),
)
"""What makes two lines the same, the strictest first."""


def unmatched(left: Ledger, right: Ledger) -> tuple[Mapping[tuple[str, str], int], Mapping[tuple[str, str], int]]:
    """Bytes of each name and kind that have no counterpart in the other ledger, of both."""
    # Of more than two micro-batches an estimate makes only those that differ, so what is made in all is not known.
    several = any(isinstance(n := ledger.run.get("accumulation", 1), int) and n > 2 for ledger in (left, right))
    mine, theirs = ({i: line.at_peak if several and line.place == "device" else line.count
                     for i, line in enumerate(ledger.lines) if not (several and line.scratch)}
                    for ledger in (left, right))
    settle(left, mine)
    settle(right, theirs)
    for way in WAYS:
        places: dict[Hashable, list[int]] = {}
        for j, line in enumerate(right.lines):
            if theirs.get(j):
                places.setdefault(way(line), []).append(j)
        for i, line in enumerate(left.lines):
            if not mine.get(i):
                continue
            for j in places.get(way(line), ()):
                same = max(min(mine[i], theirs[j]), 0)
                mine[i] -= same
                theirs[j] -= same
    return rest(left, mine), rest(right, theirs)


def settle(ledger: Ledger, counts: dict[int, int]) -> None:
    """Where one tensor stands for its equal neighbour, one line has it too often and another less than never."""
    for i, line in enumerate(ledger.lines):
        for j, other in enumerate(ledger.lines if counts.get(i, 0) < 0 else ()):
            moved = min(-counts[i], max(counts.get(j, 0), 0))
            if moved > 0 and (line.kind, line.bytes, line.scratch) == (other.kind, other.bytes, other.scratch):
                counts[i] += moved
                counts[j] -= moved


def rest(ledger: Ledger, counts: Mapping[int, int]) -> Mapping[tuple[str, str], int]:
    """The bytes of so many of each line."""
    found: dict[tuple[str, str], int] = {}
    for i, line in enumerate(ledger.lines):
        if counts.get(i):
            found[line.name, line.kind] = found.get((line.name, line.kind), 0) + counts[i] * line.bytes
    return found
