"""Lines of two producers that call things by different names: which of them are the same tensors.

An estimate says `mlp.gate_proj/output`, a trace `mlp.gate_proj/mm`. Lines of one size and kind are the same: first
those of one name, then those of one module, then any. What remains is in only one of the two.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

from peakmem.ledger import Ledger, Line

Key = Callable[[Line], Hashable]
WAYS: tuple[Key, ...] = (
    lambda line: (line.name, line.kind, line.bytes),
    lambda line: (line.name.partition("/")[0], line.kind, line.bytes),
    lambda line: (line.kind, line.bytes),
)
"""What makes two lines the same, the strictest first."""


def unmatched(left: Ledger, right: Ledger) -> tuple[Mapping[tuple[str, str], int], Mapping[tuple[str, str], int]]:
    """Bytes of each name and kind that have no counterpart in the other ledger, of both."""
    mine, theirs = ({i: line.count for i, line in enumerate(ledger.lines)} for ledger in (left, right))
    for way in WAYS:
        places: dict[Hashable, list[int]] = {}
        for j, line in enumerate(right.lines):
            if theirs[j]:
                places.setdefault(way(line), []).append(j)
        for i, line in enumerate(left.lines):
            for j in places.get(way(line), ()):
                same = min(mine[i], theirs[j])
                mine[i] -= same
                theirs[j] -= same
    return rest(left, mine), rest(right, theirs)


def rest(ledger: Ledger, counts: Mapping[int, int]) -> Mapping[tuple[str, str], int]:
    """The bytes of so many of each line."""
    found: dict[tuple[str, str], int] = {}
    for i, line in enumerate(ledger.lines):
        if counts[i]:
            found[line.name, line.kind] = found.get((line.name, line.kind), 0) + counts[i] * line.bytes
    return found
