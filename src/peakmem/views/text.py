"""The answer in the terminal: first the peak, then whether it fits, then where it comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from peakmem.answers import Change, Headroom
from peakmem.ledger import Ledger
from peakmem.quantity import gib
from peakmem.views.bars import bars
from peakmem.views.layout import Line, heading, plain, wrapped
from peakmem.views.tables import changes, kinds, largest
from peakmem.views.words import about, clean, moment_words

WIDTH = 80


def render(ledger: Ledger, width: int = WIDTH) -> str:
    """The whole view as plain text."""
    return plain(page(ledger, width=width))


def page(ledger: Ledger, headroom: Headroom | None = None, tried: Sequence[Change] = (),
         together: Change | None = None, width: int = WIDTH, events: bool = False) -> list[Line]:
    """The whole view. headroom: of the GPU that was asked for; tried, together: levers on this run; events: with
    live bytes over time."""
    lines = answer(ledger, width)
    if headroom:
        lines += room(headroom, width)
    lines += wrapped(about(ledger), width, style="dim")
    lines += bars(ledger, width, headroom.capacity - headroom.context[1] if headroom else 0)
    if events:
        from peakmem.views.timeline import timeline

        lines += timeline(ledger, width)
    lines += kinds(ledger, width)
    lines += largest(ledger, width)
    lines += changes(tried, together, width)
    return lines + notes(ledger, width)


def answer(ledger: Ledger, width: int = WIDTH) -> list[Line]:
    """How much, and when: one line, unless the moment's name is long."""
    size = gib(ledger.peak.bytes)
    begun = f"peak {size}"
    (first, *more) = wrapped(moment_words(ledger.peak.moment), width, f"{begun} ", "  ") or [[]]
    said = plain([first])[len(begun):].rstrip()
    return [[("peak ", ""), (size, "strong"), (said, "")], *more]


def room(headroom: Headroom, width: int) -> list[Line]:
    """Whether it fits, and what was counted."""
    low, high = headroom.context
    have = f"{gib(headroom.capacity, 1)} of {clean(headroom.gpu, 60)}" + (" as sold" if headroom.sold else "")
    if headroom.fits:
        text, style = f"fits in {have} with {gib(headroom.spare, 1)} to spare", "good"
    elif headroom.close:
        text, style = f"too close to tell: {gib(headroom.spare, 1)} short of {have}", "bad"
    else:
        text, style = f"does not fit: exceeds {have} by {gib(-headroom.spare, 1)}", "bad"
    counted = f"counted: {gib(headroom.used)} {headroom.total} + CUDA context {gib(low, 1)} to {gib(high, 1)}"
    if headroom.sold:
        counted += "; what PyTorch reports for this GPU is not known, drivers keep up to 8 %"
    if headroom.note:
        counted += f"; {clean(headroom.note)}"
    return wrapped(text, width, style=style) + wrapped(counted, width, style="dim")


def notes(ledger: Ledger, width: int) -> list[Line]:
    """Totals, what was assumed, and the versions that the answer mirrors."""
    lines = heading("Totals and assumptions")
    totals = ledger.totals
    known = [f"tensors {gib(totals.tensors)} (each rounded up to 512 bytes)"]
    for name, value, what in (("allocated", totals.allocated, "with kernel scratch"),
                              ("reserved", totals.reserved, "with what the allocator keeps")):
        known.append(f"{name} {gib(value)} ({what})" if value is not None else f"{name} not known")
    if totals.device:
        known.append(f"nvidia-smi {gib(totals.device[0])} to {gib(totals.device[1])}")
    elsewhere = (("host", totals.host), ("disk", totals.disk))
    known += [f"{place} {gib(size)} beside them" for place, size in elsewhere if size]
    lines += wrapped("; ".join(known) + ". GiB is 2³⁰ bytes.", width, "- ", "  ")
    for note in ledger.notes:
        lines += wrapped(clean(note), width, "- ", "  ")
    made = versions(ledger)
    if made:
        lines += wrapped(made, width, "- ", "  ")
    return lines


def versions(ledger: Ledger) -> str:
    """`estimate by peakmem 0.1.0, mirroring torch 2.13.0, transformers 5.24.0`."""
    run = ledger.run
    mirrors = run.get("mirrors")
    found: Mapping[str, object] = mirrors if isinstance(mirrors, Mapping) else run
    named = [f"{name} {clean(found[name], 40)}" for name in ("torch", "transformers", "peft") if found.get(name)]
    made = f"{clean(ledger.origin, 20)} by peakmem {clean(run['peakmem'], 20)}" if run.get("peakmem") else ""
    return (", mirroring " if ledger.origin == "estimate" else ", with ").join(
        part for part in (made, ", ".join(named)) if part)
