"""What stands behind a number: lines in full, or the whole ledger in order."""

from __future__ import annotations

import re

from peakmem.errors import UnknownName
from peakmem.ledger import KINDS, Ledger, Line as Entry
from peakmem.quantity import LEGEND, gib, meaning
from peakmem.views.colours import colour
from peakmem.views.layout import Line, heading, plain, wrapped
from peakmem.views.tables import reason
from peakmem.views.words import about, clean, moment_words, tight

MOST = 40
"""Lines that are told in full; more are counted."""


def explain(ledger: Ledger, part: str = "", width: int = 80) -> str:
    """What the ledger says of lines whose name or kind contains every word of `part`; of all, shortly, without one.

    Errors: UnknownName when no line does.
    """
    return plain(page(ledger, part, width))


def page(ledger: Ledger, part: str = "", width: int = 80) -> list[Line]:
    """The same as styled lines."""
    return matching(ledger, part, width) if part.strip() else overview(ledger, width)


def matching(ledger: Ledger, part: str, width: int) -> list[Line]:
    """Lines in full, those that hold most at the peak first."""
    words = part.lower().split()
    found = [entry for entry in ledger.lines
             if all(word in f"{entry.name} {entry.kind} {colour(entry.kind).title}".lower() for word in words)]
    if not found:
        names = {entry.name for entry in ledger.lines}
        short = (name.rsplit(".", 1)[-1] for name in names)
        ranked = sorted(ledger.lines, key=lambda entry: (-entry.bytes_at_peak, entry.name))
        largest = list(dict.fromkeys(clean(entry.name.rsplit(".", 1)[-1], 40) for entry in ranked))[:4]
        raise UnknownName("line", part, {*names, *short, *KINDS}, "peakmem explain MODEL",
                          instead=f"give a kind or part of a name: {', '.join((*largest, 'weights'))}")
    found.sort(key=lambda entry: (-entry.bytes_at_peak, -entry.bytes * entry.count, entry.name))
    peak = ledger.peak
    held = sum(entry.bytes_at_peak for entry in found if not entry.scratch)
    share = f" ({100 * held / peak.bytes:.1f} %)" if peak.bytes else ""
    lines = wrapped(f"{gib(held)} of the peak of {gib(peak.bytes)}{share} {moment_words(peak.moment)} "
                    f"{'is in 1 line' if len(found) == 1 else f'are in {len(found):,} lines'} with {clean(part, 80)!r}",
                    width, style="strong")
    lines += wrapped(about(ledger), width, style="dim")
    for entry in found[:MOST]:
        lines += [[], *full(entry, width)]
    if len(found) > MOST:
        lines += [[], [(f"{len(found) - MOST:,} more hold less; give more of the name", "dim")]]
    return lines + letters([entry.formula for entry in found[:MOST]], width)


def full(entry: Entry, width: int) -> list[Line]:
    """Everything that one line knows."""
    look = colour(entry.kind)
    name = [(look.letter, entry.kind), (" ", ""), (clean(entry.name, 300), "strong")]
    lines: list[Line] = [list(name)]
    alive = "none of it" if not entry.at_peak else (
        gib(entry.bytes) if entry.at_peak == 1 else
        f"{entry.at_peak:,} × {gib(entry.bytes)} = {gib(entry.bytes_at_peak)}")
    rows = [("kind", look.title + (", scratch: no tensor owns it" if entry.scratch else "")), ("size", size(entry)),
            ("made", f"{entry.count:,} in a step" if entry.count != 1 else "once"), ("at peak", alive),
            ("born", moment_words(entry.born) or "before the step"),
            ("freed", moment_words(entry.freed) or "never: it outlives the step"),
            ("why", clean(reason(entry))), ("mirrors", clean(entry.source))]
    for title, text in rows:
        if text:
            lines += wrapped(text, width, f"  {title:<8} ", " " * 11, "")
    return lines


def size(entry: Entry) -> str:
    """`2·b·s·f = 2·1·8192·14336 = 234,881,024 bytes`, and what rounding made of it where that is more."""
    forms = dict.fromkeys(clean(text) for text in (entry.formula, entry.substituted) if text)
    product = 1
    for factor in entry.substituted.split("·"):
        product *= int(factor) if factor.isdecimal() and len(factor) < 20 else 0
    if product and product != entry.bytes:
        return " = ".join((*forms, f"{product:,} bytes")) + f", as {entry.bytes:,}"
    return " = ".join((*forms, f"{entry.bytes:,} bytes"))


def overview(ledger: Ledger, width: int) -> list[Line]:
    """Peak, phases, kinds with both forms of their rule, and all lines by size."""
    peak = ledger.peak
    lines: list[Line] = [[("peak ", ""), (gib(peak.bytes), "strong"), (f" = {peak.bytes:,} bytes ", ""),
                          (moment_words(peak.moment), "")]]
    lines += wrapped(about(ledger), width, style="dim")
    lines += heading("Tensors at each phase")
    lines += [[(f"  {clean(name, 30).replace('_', ' '):<16}{gib(size):>12}{size:>20,} bytes", "")]
              for name, size in ledger.phases.items()]
    lines += heading("Each kind at its largest")
    for kind in KINDS:
        top = ledger.kinds.get(kind)
        if top is None or not top.largest:
            continue
        lines.append([("  ", ""), (colour(kind).letter, kind), (f" {colour(kind).title}: ", ""),
                      (gib(top.largest), "strong"), (f" {moment_words(top.at)}", "")])
        for title, text in (("rule", top.formula), ("with numbers", top.substituted), ("why", top.why)):
            if text:
                lines += wrapped(tight(clean(text)), width, f"    {title:<13}", " " * 17, "dim")
    lines += heading("All lines, the largest first")
    for entry in sorted(ledger.lines, key=lambda e: (-e.bytes * e.count, e.name)):
        times = f"{entry.count:,} × " if entry.count != 1 else ""
        lines.append([("  ", ""), (colour(entry.kind).letter, entry.kind),
                      (f" {times + gib(entry.bytes):>20}", ""), (f"  {clean(entry.name, max(20, width - 26))}", "")])
    lines += [[], *wrapped("One of them in full: peakmem explain MODEL … LINE, with a part of its name.", width)]
    return lines + letters([top.formula for top in ledger.kinds.values()], width)


def letters(formulas: list[str], width: int) -> list[Line]:
    """What the letters of some formulas stand for."""
    order = {letter: i for i, letter in enumerate(LEGEND)}
    found = {word for text in formulas for word in re.findall(r"[A-Za-z]+[0-9]*", text) if meaning(word)}
    used = sorted(found, key=lambda word: (order.get(word, order.get(word.rstrip("0123456789"), len(order))), word))
    if not used:
        return []
    listed = ", ".join(f"{word} {meaning(word)}" for word in used)
    text = f"Letters: {listed}. Sizes are rounded up to 512 bytes; GiB is 2³⁰ bytes."
    return [[], *wrapped(text, width, style="dim")]
