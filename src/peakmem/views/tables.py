"""Tables of the text view: kinds, the largest lines, changes that were tried."""

from __future__ import annotations

from collections.abc import Iterable

from peakmem.answers import Change
from peakmem.ledger import KINDS, Ledger, Line as Entry
from peakmem.quantity import gib
from peakmem.views.colours import colour
from peakmem.views.layout import Line, heading, wrapped
from peakmem.views.words import clean, moment_words, tight


def kinds(ledger: Ledger, width: int) -> list[Line]:
    """The largest size that each kind reaches, when, and its rule with numbers put in."""
    found = [(kind, ledger.kinds[kind]) for kind in KINDS if kind in ledger.kinds and ledger.kinds[kind].largest]
    if not found:
        return []
    lines = heading("Each kind at its largest")
    for kind, top in found:
        look = colour(kind)
        line: Line = [("  ", ""), (look.letter, kind), (f" {look.title:<16}", ""),
                      (f"{gib(top.largest):>11}", "strong"), (f"  {moment_words(top.at)}", "")]
        lines += fitted(line, width)
        rule = tight(clean(top.substituted))
        if rule:
            lines += wrapped(f"= {rule}", width, " " * 6, " " * 8, "dim", most=2)
    return lines


def fitted(line: Line, width: int) -> list[Line]:
    """A line whose last piece is wrapped where it does not fit."""
    size = sum(len(text) for text, _ in line[:-1])
    text, style = line[-1]
    if size + len(text) <= width:
        return [line]
    first, *rest = wrapped(text.strip(), width - size - 2, style=style)
    return [[*line[:-1], ("  ", ""), *first], *([(" " * (size + 2), ""), *more] for more in rest)]


def largest(ledger: Ledger, width: int, count: int = 6) -> list[Line]:
    """What holds most at the peak, and why it is alive. Lines of one kind and size stand together."""
    alive = [entry for entry in ledger.lines if entry.at_peak and not entry.scratch]
    groups: dict[tuple[str, str, int, int], list[Entry]] = {}
    for entry in alive:
        groups.setdefault((entry.kind, entry.substituted, entry.bytes, entry.at_peak), []).append(entry)
    ranked = sorted(groups.values(), key=lambda group: (-weight(group), group[0].name))
    lines = heading("Largest at the peak, and why they are alive") if ranked else []
    for group in ranked[:count]:
        lines += grouped(group, width)
    rest = sum(weight(group) for group in ranked[count:])
    if rest:
        lines.append([(f"    {gib(rest):>11}  in {sum(len(group) for group in ranked[count:]):,} more lines", "dim")])
    return lines


def reason(entry: Entry) -> str:
    """Why a line is alive, without its name, which stands beside it."""
    return entry.why.removeprefix(entry.name).lstrip(" :")


def weight(group: list[Entry]) -> int:
    """Bytes of some lines at the peak."""
    return sum(entry.bytes_at_peak for entry in group)


def grouped(group: list[Entry], width: int) -> list[Line]:
    """Equal lines: what they hold together, the first one's name, the rule of one, and why it is alive."""
    first = group[0]
    name = clean(first.name, 200) + (f" (+{len(group) - 1} alike)" if len(group) > 1 else "")
    lines = fitted([("  ", ""), (colour(first.kind).letter, first.kind), (f" {gib(weight(group)):>11}", "strong"),
                    (f"  {name}", "")], width)
    each = f"{clean(first.substituted)} bytes" if first.substituted else gib(first.bytes)
    times = [f"{n:,} × " for n in (len(group), first.at_peak) if n != 1]
    why = clean(reason(first), 300)
    rule = f"{''.join(times)}{each}" + (f"; {why}" if why else "")
    return lines + wrapped(rule, width, " " * 6, " " * 8, "dim", most=2)


def changes(tried: Iterable[Change], together: Change | None, width: int) -> list[Line]:
    """Levers tried on this very run: bytes before and after, and what is paid."""
    rows = sorted(tried, key=lambda change: (bool(change.refused), change.after))
    if not rows:
        return []
    lines = heading(f"What would lower it: from {gib(rows[0].before)}, each tried on this run")
    worth = [change for change in rows if not change.refused]
    wide = min(max((len(change.flags) for change in worth), default=0), 32)
    for change in worth:
        if len(change.flags) > wide:
            lines.append([(f"  {change.flags}", "")])
        lead: Line = [("  " + ("" if len(change.flags) > wide else change.flags).ljust(wide), ""),
                      (f" →{gib(change.after):>13}", "strong"), (" fits " if change.fits else "      ", "good")]
        first, *rest = wrapped(change.costs, width - wide - 25, style="dim") or [[]]
        lines += [[*lead, ("  ", ""), *first], *([(" " * (wide + 25), ""), *more] for more in rest)]
    for change in rows:
        if change.refused:
            text = f"{change.flags}: not with this run: {clean(change.refused)}"
            lines += wrapped(text, width, "  ", "      ", "dim")
    if together:
        lines += heading(f"Together it {'fits' if together.fits else 'still does not fit'}")
        lines += wrapped(f"{together.flags} → {gib(together.after)}", width, "  ", "    ",
                         "good" if together.fits else "bad")
    return lines
