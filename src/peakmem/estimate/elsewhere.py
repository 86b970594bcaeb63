"""What lies in the host's memory or on a disk: lines of their own, in no total of the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peakmem.estimate.formulas import settled, size_text
from peakmem.estimate.replay import size, value
from peakmem.estimate.tape import Record, Tape
from peakmem.ledger import Line


def lines_elsewhere(tape: Tape, numbers: Mapping[str, Any], source: str) -> tuple[Line, ...]:
    """Tensors of one name, size, kind and place as one line. Nothing is rounded: no allocator of ours is there."""
    counts: dict[tuple[Any, ...], int] = {}
    first: dict[tuple[Any, ...], Record] = {}
    for record in tape.elsewhere:
        key = record.name, record.kind, record.place, record.key
        counts[key] = counts.get(key, 0) + (int(value(record.fold, numbers)) if record.fold else 1)
        first.setdefault(key, record)
    lines = []
    for (name, kind, place, key), count in counts.items():
        amount = int(size(key, numbers))
        if count and amount:
            record = first[name, kind, place, key]
            purpose = record.purpose or f"kept there between steps as {kind.replace('_', ' ')}"
            lines.append(Line(name=name, kind=kind, bytes=amount, count=count, formula=size_text(settled(key, numbers)),
                              substituted=size_text(key, numbers), born="start", freed="",
                              why=f"{name}, {PLACES[place]}: {purpose}", source=record.source or source,
                              place=place))
    return tuple(lines)


PLACES = {"host": "in the host's memory", "disk": "on the disk"}


def bytes_at(tape: Tape, numbers: Mapping[str, Any], place: str) -> int:
    """Everything in one place."""
    return sum(int(size(record.key, numbers)) * (int(value(record.fold, numbers)) if record.fold else 1)
               for record in tape.elsewhere if record.place == place)
