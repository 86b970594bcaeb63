"""A ledger in a notebook: one fragment of HTML that needs nothing from anywhere."""

from __future__ import annotations

from peakmem.ledger import KINDS, Ledger
from peakmem.quantity import gib
from peakmem.views.colours import colour
from peakmem.views.svg import bars, text, variables
from peakmem.views.tables import reason, weight
from peakmem.views.words import about, moment_words

STYLE = """
.peakmem{color:var(--ink);font:14px/1.45 system-ui,sans-serif;max-width:720px}
.peakmem svg text{fill:var(--ink);font:12px system-ui,sans-serif;font-variant-numeric:tabular-nums}
.peakmem svg .letter{font-size:11px;pointer-events:none}
.peakmem svg .limit{stroke:var(--ink);stroke-dasharray:4 3}
.peakmem table{border-collapse:collapse;margin:.6em 0;font-variant-numeric:tabular-nums;background:none}
.peakmem th,.peakmem td{text-align:left;padding:.15em .9em .15em 0;vertical-align:top;background:none;color:inherit}
.peakmem td.n{text-align:right;white-space:nowrap}
.peakmem .q{color:var(--quiet)}
.peakmem code{font:12px ui-monospace,monospace;background:none;color:inherit;overflow-wrap:anywhere}
.peakmem i{display:inline-block;width:1.35em;text-align:center;font:600 11px/1.35 system-ui;border:2px solid}
"""


def html(ledger: Ledger) -> str:
    """The answer, the bars, the kinds with their rules, the largest lines, the notes."""
    peak = ledger.peak
    parts = [f'<div class="peakmem"><style>{variables()}{STYLE}</style>',
             f"<p><b>peak {gib(peak.bytes)}</b> {text(moment_words(peak.moment))}<br>"
             f'<span class="q">{text(about(ledger))}</span></p>', bars(ledger), kinds(ledger), largest(ledger)]
    if ledger.notes:
        items = "".join(f"<li>{text(note)}</li>" for note in ledger.notes)
        parts.append(f'<details class="q"><summary>Assumptions</summary><ul>{items}</ul></details>')
    return "".join(parts) + "</div>"


def badge(kind: str) -> str:
    """The letter of a kind, framed in its colour."""
    look = colour(kind)
    return f'<i style="border-color:var(--{text(kind)},{look.light})" title="{text(look.title)}">{look.letter}</i>'


def kinds(ledger: Ledger) -> str:
    """Each kind at its largest, when, and its rule with numbers."""
    rows = []
    for kind in KINDS:
        top = ledger.kinds.get(kind)
        if top and top.largest:
            rows.append(f"<tr><td>{badge(kind)} {text(colour(kind).title)}</td><td class=n>{gib(top.largest)}</td>"
                        f"<td>{text(moment_words(top.at))}<br><code class=q>{text(top.substituted)}</code></td></tr>")
    head = "<tr><th>kind</th><th>largest</th><th>when, and by which rule</th></tr>"
    return f"<table>{head}{''.join(rows)}</table>" if rows else ""


def largest(ledger: Ledger, count: int = 10) -> str:
    """The lines that hold most at the peak, folded away."""
    rows = [f"<tr><td>{badge(line.kind)} <code>{text(line.name)}</code></td><td class=n>{gib(weight([line]))}</td>"
            f"<td class=q>{text(reason(line))}</td></tr>" for line in ledger.largest(count)]
    head = "<tr><th>line</th><th>at the peak</th><th>why</th></tr>"
    body = f"<table>{head}{''.join(rows)}</table>"
    return f"<details><summary>Largest at the peak</summary>{body}</details>" if rows else ""
