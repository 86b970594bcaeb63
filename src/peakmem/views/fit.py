"""The largest batch, and how close it is."""

from __future__ import annotations

from collections.abc import Iterable

from peakmem.answers import Change, Headroom
from peakmem.ledger import Ledger
from peakmem.quantity import gib
from peakmem.views.layout import Line, wrapped
from peakmem.views.tables import changes
from peakmem.views.text import answer, room
from peakmem.views.words import about, settings_of


def named(ledger: Ledger, count: int) -> str:
    """What a batch consists of."""
    read = str(settings_of(ledger).get("input", ""))
    word = "image" if "pixels" in read or "latents" in read else "sequence"
    return word if count == 1 else f"{word}s"


def page(batch: int, ledger: Ledger, at: Headroom, above: Headroom | None, width: int = 80,
         tried: Iterable[Change] = (), together: Change | None = None) -> list[Line]:
    """batch: the largest, 0: none; ledger, at: with it, or with 1; above: with one more; tried: if none fits."""
    if batch:
        what = named(ledger, batch)
        lines: list[Line] = [[("largest batch ", ""), (f"{batch:,}", "strong"),
                              (f": {batch:,} {what} per GPU in one micro-batch", "")]]
    else:
        lines = [[("no batch fits", "bad"), (f", not even 1 {named(ledger, 1)}", "")]]
    lines += room(at, width)
    if above:
        over = f"exceeds by {gib(-above.spare, 1)}" if above.spare < 0 else "is too close to tell"
        lines += wrapped(f"a batch of {batch + 1:,} {over}", width)
    lines += answer(ledger, width) + wrapped(about(ledger), width, style="dim")
    return lines + changes(tried, together, width)
