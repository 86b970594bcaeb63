"""The moments as SVG text: for notebooks and documents, without a library."""

from __future__ import annotations

from html import escape

from peakmem.ledger import Ledger
from peakmem.quantity import gib
from peakmem.views.colours import COLOURS, colour, ink
from peakmem.views.words import clean, moment_words

WIDTH, ROW, BAR, LEFT, RIGHT = 640, 24, 18, 46, 90


def variables(prefix: str = ".peakmem") -> str:
    """CSS: a custom property for each kind, dark where the reader's system is, or the notebook says so."""
    light = "".join(f"--{kind}:{look.light};--on-{kind}:{ink(look.light)};" for kind, look in COLOURS.items())
    dark = "".join(f"--{kind}:{look.dark};--on-{kind}:{ink(look.dark)};" for kind, look in COLOURS.items())
    light += "--ink:#222;--quiet:#5c5c5c;--ground:#fff;"
    dark += "--ink:#e8e8e8;--quiet:#a8a8a8;--ground:#16181d;"
    themed = ", ".join(f"{name} {prefix}" for name in ('[data-jp-theme-light="false"]', '[data-theme="dark"]',
                                                       "body.vscode-dark"))
    return f"{prefix}{{{light}}}@media (prefers-color-scheme: dark){{{prefix}{{{dark}}}}}{themed}{{{dark}}}"


def bars(ledger: Ledger, capacity: int = 0) -> str:
    """One bar for each moment at its highest, its amount beside it; `capacity`: bytes, a line across."""
    rows = ledger.chart
    top = max([row.peak for row in rows] + [1])
    shown = 0 < capacity <= 2 * top
    scale = max(top, capacity) if shown else top
    room = WIDTH - LEFT - RIGHT
    height = ROW * len(rows) + (20 if shown else 6)
    title = f"peak {gib(ledger.peak.bytes)} {moment_words(ledger.peak.moment)}"
    parts = [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{text(title)}" '
             f'xmlns="http://www.w3.org/2000/svg" style="max-width:{WIDTH}px;width:100%">']
    for i, row in enumerate(rows):
        y = i * ROW + 2
        parts.append(f'<text x="{LEFT - 6}" y="{y + 13}" text-anchor="end">{text(clean(row.moment, 14))}</text>')
        total = 0
        for kind in COLOURS:
            size = row.peak_by_kind.get(kind, 0)
            left, total = total, total + size
            if size <= 0:
                continue
            x, wide = LEFT + room * left / scale, room * size / scale
            words = f"{clean(row.moment, 14)}: {colour(kind).title} {gib(size)}"
            # A line of the ground's colour parts neighbours whose colours are of like brightness.
            parts.append(f'<rect x="{x:.2f}" y="{y}" width="{max(wide - 1, 0.3):.2f}" height="{BAR}" '
                         f'style="fill:var(--{kind},{colour(kind).light})"><title>{text(words)}</title></rect>')
            if wide >= 14:
                on = f"var(--on-{kind},{ink(colour(kind).light)})"
                parts.append(f'<text x="{x + wide / 2:.2f}" y="{y + 13}" text-anchor="middle" class="letter" '
                             f'style="fill:{on}">{colour(kind).letter}</text>')
        weight = ' style="font-weight:600"' if row.peak == top else ""
        parts.append(f'<text x="{LEFT + room * row.peak / scale + 5:.2f}" y="{y + 13}"{weight}>{gib(row.peak)}</text>')
    if shown:
        x, end = LEFT + room * capacity / scale, ROW * len(rows)
        parts.append(f'<line x1="{x:.2f}" x2="{x:.2f}" y1="0" y2="{end}" stroke="currentColor" class="limit"/>'
                     f'<text x="{x:.2f}" y="{end + 14}" text-anchor="middle">room on the GPU {gib(capacity)}</text>')
    return "".join(parts) + "</svg>"


def text(words: object) -> str:
    """Text as it may stand in HTML and SVG."""
    return escape(clean(words), quote=True)
