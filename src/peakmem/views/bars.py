"""Stacked bars in letters: one row for each moment."""

from __future__ import annotations

from collections.abc import Mapping

from peakmem.ledger import Ledger
from peakmem.quantity import gib
from peakmem.views.colours import COLOURS, colour
from peakmem.views.layout import Line
from peakmem.views.words import clean

LIMIT = "|"


def bars(ledger: Ledger, width: int, capacity: int = 0) -> list[Line]:
    """The moments: each at its highest, with the amount there and the amount at its end.

    capacity: bytes that are there for tensors, marked by a column of `|` where it is not far beyond the bars.
    """
    rows = ledger.chart
    if not rows:
        return []
    names = max(len(clean(row.moment, 14)) for row in rows)
    wide = max(len(gib(amount)) for row in rows for amount in (row.peak, row.end)) + 1
    high, end = max(12, wide), max(13, wide)
    room = max(16, width - names - 5 - high - end)
    top = max(max(row.peak for row in rows), 1)
    shown = bool(capacity) and capacity <= 2 * top
    scale = max(top, capacity) if shown else top
    mark = min(room - 1, capacity * room // scale) if shown else -1
    title = "Each moment at its highest"
    head = f"{'highest':>{high}}{'at its end':>{end}}"
    lines: list[Line] = [[], [(title, "strong"), (head.rjust(names + 3 + room + high + end - len(title)), "dim")]]
    for row in rows:
        line: Line = [("  ", ""), (clean(row.moment, 14).ljust(names + 1), "")]
        line += stack(row.peak_by_kind, scale, room, mark)
        line += [(f"{gib(row.peak):>{high}}", "strong" if row.peak == top else ""), (f"{gib(row.end):>{end}}", "dim")]
        lines.append(line)
    return lines + legend(ledger, width, scale / room, capacity if shown else 0)


def stack(amounts: Mapping[str, int], scale: int, room: int, mark: int = -1) -> Line:
    """One bar: `room` columns stand for `scale` bytes. A part's ends are rounded, so parts never drift."""
    cells: list[tuple[str, str]] = []
    total = 0
    for kind in [*COLOURS, *(kind for kind in amounts if kind not in COLOURS)]:
        total += amounts.get(kind, 0)
        end = (2 * total * room + scale) // (2 * scale)
        cells += [(colour(kind).letter, kind)] * (end - len(cells))
    cells += [(" ", "")] * (room - len(cells))
    if 0 <= mark < room:
        cells[mark] = (LIMIT, "strong")
    joined: Line = []
    for text, style in cells:
        if joined and joined[-1][1] == style:
            joined[-1] = (joined[-1][0] + text, style)
        else:
            joined.append((text, style))
    return joined


def legend(ledger: Ledger, width: int, column: float, capacity: int) -> list[Line]:
    """What the letters stand for, and a column's size."""
    present = [kind for kind in COLOURS if any(row.peak_by_kind.get(kind) for row in ledger.chart)]
    items: list[Line] = [[(colour(kind).letter, kind), (f" {colour(kind).title}", "")] for kind in present]
    if capacity:
        items.append([(LIMIT, "strong"), (f" room on the GPU: {gib(capacity)}", "")])
    items.append([(f"a column is {gib(column)}", "dim")])
    lines: list[Line] = [[("  ", "")]]
    used = 2
    for item in items:
        size = sum(len(text) for text, _ in item)
        if used > 2 and used + 3 + size > width:
            lines.append([("  ", "")])
            used = 2
        if used > 2:
            lines[-1].append(("   ", ""))
            used += 3
        lines[-1] += item
        used += size
    return lines
