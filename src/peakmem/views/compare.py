"""Two ledgers side by side: by phase, by kind, by line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from peakmem.immutable import immutable
from peakmem.ledger import KINDS, Ledger
from peakmem.quantity import gib
from peakmem.views.colours import colour
from peakmem.views.layout import Line, heading, plain, wrapped
from peakmem.views.matching import unmatched
from peakmem.views.words import about, clean, settings_of

MOST = 30
"""Lines that are shown of each list; the rest is counted."""


@immutable
class Pair:
    """One thing in both: bytes here and there, None where it is missing."""

    name: str
    kind: str
    left: int | None
    right: int | None

    @property
    def difference(self) -> int:
        return (self.right or 0) - (self.left or 0)

    @property
    def equal(self) -> bool:
        return self.left == self.right


@immutable
class Comparison:
    """Phases and totals, kinds at the peak, lines (all bytes that a line makes in a step)."""

    phases: tuple[Pair, ...]
    kinds: tuple[Pair, ...]
    lines: tuple[Pair, ...]

    @property
    def equal(self) -> bool:
        return all(pair.equal for pair in (*self.phases, *self.kinds, *self.lines))


def compared(left: Ledger, right: Ledger) -> Comparison:
    """What differs, to the byte. A total that one side does not know is not compared."""
    totals = [(name, getattr(left.totals, name), getattr(right.totals, name))
              for name in ("tensors", "allocated", "reserved")]
    phases = [("peak", left.peak.bytes, right.peak.bytes), *(
        (name, a, b) for name, a, b in totals if a is not None and b is not None)]
    phases += [(name, left.phases.get(name), right.phases.get(name)) for name in {**left.phases, **right.phases}]
    a, b = left.by_kind(), right.by_kind()
    kinds = [Pair(colour(kind).title, kind, a.get(kind, 0), b.get(kind, 0))
             for kind in KINDS if a.get(kind) or b.get(kind)]
    mine, theirs = summed(left), summed(right)
    if left.origin != right.origin:
        mine, theirs = unmatched(left, right)
    lines = [Pair(name, kind, mine.get((name, kind)), theirs.get((name, kind))) for name, kind in {**mine, **theirs}]
    return Comparison(tuple(Pair(name, "", x, y) for name, x, y in phases), tuple(kinds), tuple(lines))


def summed(ledger: Ledger) -> Mapping[tuple[str, str], int]:
    """Bytes that each name makes in a step."""
    result: dict[tuple[str, str], int] = {}
    for entry in ledger.lines:
        key = entry.name, entry.kind
        result[key] = result.get(key, 0) + entry.bytes * entry.count
    return result


def compare(left: Ledger, right: Ledger, names: tuple[str, str] = ("", ""), width: int = 80) -> str:
    """The comparison as plain text."""
    return plain(page(left, right, names, width))


def page(left: Ledger, right: Ledger, names: tuple[str, str] = ("", ""), width: int = 80) -> list[Line]:
    """The answer first, then phases, kinds, lines, and the settings that differ."""
    found = compared(left, right)
    a, b = left.peak.bytes, right.peak.bytes
    if found.equal:
        lines: list[Line] = [[("equal", "good"), (f": peak {gib(a)}, every phase, kind and line to the byte", "")]]
    elif a == b:
        lines = [[("they differ", "bad"), (f", at the same peak of {gib(a)}", "")]]
    else:
        more = "more" if b > a else "less"
        text = f": the peak of B is {gib(abs(b - a))} {more}: {gib(a)} → {gib(b)}"
        lines = [[("they differ", "bad"), (text, "")]]
    for letter, name, ledger in (("A", names[0], left), ("B", names[1], right)):
        text = ", ".join(filter(None, (clean(name, 200), clean(ledger.origin, 20)))) + f": {about(ledger)}"
        lines += wrapped(text, width, f"{letter}  ", "   ", "dim")
    lines += other_settings(left, right, width)
    lines += table("Phases", found.phases, width)
    lines += table("Kinds at the peak", found.kinds, width)
    changed = [p for p in found.lines if not p.equal and p.left is not None and p.right is not None]
    lines += table("Lines that differ (all that a line makes in a step)", changed, width)
    lines += table("Lines only in A", [p for p in found.lines if p.right is None], width)
    return lines + table("Lines only in B", [p for p in found.lines if p.left is None], width)


def other_settings(left: Ledger, right: Ledger, width: int) -> list[Line]:
    """Settings and dimensions that are not the same, where both sides say them."""
    told = []
    for a, b in ((settings_of(left), settings_of(right)), (left.run.get("model"), right.run.get("model"))):
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            told += [f"{clean(name, 40)} {clean(a[name], 40)} → {clean(b[name], 40)}" for name in a
                     if name in b and listed(a[name]) != listed(b[name]) and not isinstance(a[name], Mapping)]
    return wrapped("differs: " + ", ".join(told), width, style="dim") if told else []


def listed(value: object) -> object:
    """JSON gives lists where Python had tuples."""
    return list(value) if isinstance(value, tuple) else value


def table(title: str, pairs: Iterable[Pair], width: int) -> list[Line]:
    """Rows with both amounts and the difference, largest difference first where they are many."""
    rows = list(pairs)
    if not rows:
        return []
    if len(rows) > MOST:
        rows.sort(key=lambda pair: (-abs(pair.difference), pair.name))
    amounts = [(amount(pair.left), amount(pair.right), "" if pair.equal else signed(pair.difference)) for pair in rows]
    wide = max(11, *(len(text) for row in amounts for text in row)) + 2  # two columns apart at least
    room = max(16, width - 5 - 3 * wide)
    head = f"{'A':>{wide}}{'B':>{wide}}{'B − A':>{wide}}"
    lines = [*heading(title)[:-1], [(title, "strong"), (head.rjust(max(5 + room + 3 * wide - len(title), 1)), "dim")]]
    if len(title) > room + 3:
        lines = [*heading(title), [(head.rjust(5 + room + 3 * wide), "dim")]]
    for pair in rows[:MOST]:
        letter = (colour(pair.kind).letter, pair.kind) if pair.kind else (" ", "")
        name = clean(pair.name, 300)
        if not pair.kind:
            name = name.replace("_", " ")
        if len(name) > room:
            lines.append([("  ", ""), letter, (f" {name}", "")])
            letter, name = (" ", ""), ""
        apart = "" if pair.equal else signed(pair.difference)
        lines.append([("  ", ""), letter, (f" {name:<{room}} ", ""),
                      (f"{amount(pair.left):>{wide}}{amount(pair.right):>{wide}}", ""), (f"{apart:>{wide}}", "strong")])
    if len(rows) > MOST:
        lines.append([(f"    {len(rows) - MOST:,} more differ by less", "dim")])
    return lines


def amount(size: int | None) -> str:
    return "–" if size is None else gib(size)


def signed(size: int) -> str:
    """A difference with its sign: small ones in bytes."""
    text = gib(abs(size))
    return f"+{text}" if size > 0 else f"−{text}" if size < 0 else "0 B"
