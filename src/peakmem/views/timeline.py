"""Live bytes over the step in letters: time runs down, each row is the highest instant of its share of the events."""

from __future__ import annotations

from peakmem.ledger import ByKind, Ledger
from peakmem.quantity import gib
from peakmem.views.bars import stack
from peakmem.views.layout import Line
from peakmem.views.words import clean

ROWS = 28


def events_of(ledger: Ledger) -> tuple[tuple[str, ByKind], ...]:
    """Every event of the step; what was there before it is one."""
    events = ledger.timeline
    first = next((i for i, (moment, _) in enumerate(events) if moment.split("/")[0] not in ("start", "load")), 0)
    return events[max(0, first - 1) :]


def timeline(ledger: Ledger, width: int = 80, rows: int = ROWS) -> list[Line]:
    """At most `rows` rows; empty where the ledger has no events."""
    events = events_of(ledger)
    if not events:
        return []
    room = width - 42
    sizes = [sum(by_kind.values()) for _, by_kind in events]
    top = max(*sizes, 1)
    rows = min(rows, len(events))
    title = f"Over time: {len(events):,} events"
    lines: list[Line] = [[], [(title, "strong"), ("highest".rjust(28 + room + 13 - len(title)), "dim")]]
    for i in range(rows):
        share = range(i * len(events) // rows, (i + 1) * len(events) // rows)
        at = max(share, key=lambda k: sizes[k])
        moment, by_kind = events[at]
        name = clean(moment.replace("/", " ").replace("model.", ""), 200)
        lines.append([(f"  {name if len(name) <= 25 else name[:24] + '…':<26}", "dim"), *stack(by_kind, top, room),
                      (f"{gib(sizes[at]):>13}", "strong" if sizes[at] == top else "")])
    return lines
