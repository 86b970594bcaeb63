"""Published runs against estimates: the table, errors by reading and by source, what is demanded, what is missing."""

from __future__ import annotations

from typing import Any

from peakmem.answers import Accuracy, Compared, Summary
from peakmem.immutable import fields
from peakmem.quantity import counted
from peakmem.views.layout import Line, heading, wrapped
from peakmem.views.words import clean

GB = 10**9


def page(found: Accuracy, width: int = 80) -> list[Line]:
    """The answer first, then the errors, the rows, and the reasons of those that are not there."""
    lines: list[Line] = []
    for threshold in found.thresholds:
        mark = ("met   ", "good") if threshold.met else ("missed", "bad")
        lines.append([mark, (f"  {threshold.name:<18}", "strong"), (f"{threshold.found:<18}", ""),
                      (f"wanted: {threshold.wanted}", "dim")])
    lines += wrapped(demands(found), width)
    lines += heading("Errors, in percent of the published figure")
    lines.append([(f"  {'':<30}{'rows':>5}{'median':>8}{'95th':>8}{'worst':>9}{'under':>7}{'furthest':>10}", "dim")])
    lines += [errors(summary) for summary in found.summaries]
    if found.compared:
        lines += heading("Rows, in GB (10⁹ bytes); * counts for what is demanded")
        lines.append([(f"  {'':<6}{'model':<23}{'reading':<21}{'published':>9}{'ours':>9}{'error':>9}", "dim")])
        lines += [row_line(row) for row in found.compared]
    if found.refused:
        lines += heading(f"Not expressed: {len(found.refused)} rows")
        for reason, names in by_reason(found).items():
            lines += wrapped(f"{clean(reason, 300)}: {', '.join(map(clean, names))}", width, "  ", "      ")
    return lines


def demands(found: Accuracy) -> str:
    """Which totals the demands are about, and how far off those are of which nothing is demanded."""
    groups: dict[str, list[float]] = {}
    for row in found.compared:
        if not row.demanded:
            groups.setdefault(row.reading, []).append(row.error)
    rest = [f"{clean(reading, 30)}, {counted(len(errors), 'row')}, worst {max(errors, key=abs):+.2f} %, "
            f"{sum(error < 0 for error in errors)} under" for reading, errors in groups.items()]
    about = "Demanded of allocated memory of one GPU (*), of inference, and of what one GPU reserved."
    return about + (f" Nothing is demanded of the rest: {'; '.join(rest)}." if rest else "")


def errors(summary: Summary) -> Line:
    """One group of rows."""
    return [(f"  {clean(summary.name, 30):<30}", ""), (f"{summary.rows:>5}", ""), (f"{summary.median:>8.2f}", "strong"),
            (f"{summary.late:>8.2f}{summary.worst:>+9.2f}{summary.under:>7}", ""),
            (f"{min(summary.lowest, 0):>+10.2f}" if summary.under else f"{'–':>10}", "")]


def row_line(row: Compared) -> Line:
    """One row."""
    return [(f"{'*' if row.counted else ' '} {clean(row.name, 5):<6}{clean(row.model, 22):<23}{row.reading:<21}", ""),
            (f"{row.published / GB:>9.3f}{row.estimated / GB:>9.3f}", ""),
            (f"{row.error:>+8.2f}%", "" if abs(row.error) <= 5 else "bad")]


def by_reason(found: Accuracy) -> dict[str, list[str]]:
    """Names of the rows by why they are not expressed."""
    groups: dict[str, list[str]] = {}
    for name, reason in found.refused:
        groups.setdefault(reason, []).append(name)
    return groups


def as_json(found: Accuracy) -> dict[str, Any]:
    """All of it in plain containers."""
    return {
        "format": "peakmem.accuracy/1",
        "met": found.met,
        "thresholds": [plainly(row) for row in found.thresholds],
        "demands": demands(found),
        "summaries": [plainly(row) for row in found.summaries],
        "rows": [plainly(row) for row in found.compared],
        "not_expressed": [{"name": name, "reason": reason} for name, reason in found.refused],
    }


def plainly(row: Any) -> dict[str, Any]:
    """A record as a dictionary."""
    return {name: getattr(row, name) for name in fields(type(row))}
