"""The moments as a picture for papers and slides: .png, .svg or .pdf. The only file that imports matplotlib."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from peakmem.answers import Headroom
from peakmem.errors import Impossible, Missing, Unreadable, printable
from peakmem.files import writable
from peakmem.ledger import ByKind, Ledger
from peakmem.quantity import GIB, gib
from peakmem.views.colours import COLOURS, colour
from peakmem.views.timeline import events_of
from peakmem.views.words import about, clean, moment_words

NEEDS = "--plot needs matplotlib"
SUFFIXES = (".png", ".svg", ".pdf")
INK, QUIET = "#222222", "#666666"


def save(ledger: Ledger, path: str, headroom: Headroom | None = None, timeline: bool = False) -> None:
    """Draw a ledger into a file; its suffix says in which format.

    headroom: a line at what the GPU has; timeline: a second panel, live bytes after every event.
    Errors: Impossible for another suffix, or where there is no timeline; Missing without matplotlib; OSError.
    """
    _suffixed(path)
    events = events_of(ledger) if timeline else ()
    if timeline and not events:
        raise Impossible("this ledger has no timeline: leave --timeline out")
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise Missing(NEEDS, "plot") from None
    # Without a fixed salt and date two equal pictures would differ in their bytes.
    with matplotlib.rc_context({"svg.hashsalt": "peakmem", "hatch.linewidth": 0.6, "font.size": 9}):
        figure = Figure(figsize=(8, 7.4 if events else 4.4), layout="constrained")
        axes = figure.subplots(2 if events else 1, 1, squeeze=False)[:, 0]
        bars(axes[0], ledger, headroom)
        if events:
            over_time(axes[1], ledger, events)
        figure.suptitle(dollars(f"peak {gib(ledger.peak.bytes)} {moment_words(ledger.peak.moment)}"), color=INK, x=0.01,
                        ha="left", fontsize=12, fontweight="bold")
        if Path(path).suffix.lower() == ".png":
            figure.savefig(path, dpi=200)
        else:
            key = "Date" if Path(path).suffix.lower() == ".svg" else "CreationDate"
            figure.savefig(path, metadata={key: None})


def ready(path: str) -> None:
    """Refuse early what `save` would refuse after the work. Errors: Impossible, Missing, Unreadable."""
    _suffixed(path)
    if find_spec("matplotlib") is None:
        raise Missing(NEEDS, "plot")
    file = Path(path)
    if file.is_dir() or not file.parent.is_dir() or not os.access(file if file.exists() else file.parent, os.W_OK):
        raise Unreadable(f"--plot {printable(path)}: cannot be written there")


def _suffixed(path: str) -> None:
    """Errors: Impossible for another suffix, Unreadable for what is no regular file."""
    if Path(path).suffix.lower() not in SUFFIXES:
        raise Impossible(f"--plot {printable(path)}: the name must end in {', '.join(SUFFIXES)}")
    writable(path)


def dollars(text: str) -> str:
    """Text without formulas: matplotlib would set what stands between two dollar signs."""
    return text.replace("$", r"\$")


def present(ledger: Ledger) -> list[str]:
    """The kinds that occur, in their order."""
    return [kind for kind in COLOURS if any(row.peak_by_kind.get(kind) for row in ledger.chart)]


def bars(axes: Any, ledger: Ledger, headroom: Headroom | None) -> None:
    """One stacked bar for each moment at its highest; a tick at what is left at its end."""
    rows = ledger.chart
    names = [dollars(clean(row.moment, 14)) for row in rows]
    bottom = [0.0] * len(rows)
    for kind in present(ledger):
        look = colour(kind)
        heights = [row.peak_by_kind.get(kind, 0) / GIB for row in rows]
        axes.bar(range(len(rows)), heights, bottom=bottom, width=0.72, color=look.light, hatch=look.hatch,
                 edgecolor="white", linewidth=0.8, label=f"{look.title} ({look.letter})")
        bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
    for i, row in enumerate(rows):
        axes.plot([i - 0.42, i + 0.42], [row.end / GIB] * 2, color=INK, linewidth=1.6,
                  label="at the moment's end" if i == 0 else None)
        axes.annotate(f"{row.peak / GIB:,.1f}", (i, bottom[i]), xytext=(0, 3), textcoords="offset points",
                      ha="center", fontsize=8, color=INK, zorder=5,
                      fontweight="bold" if row.peak == ledger.peak.bytes else None,
                      bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.6})
    if headroom:
        limit = (headroom.capacity - headroom.context[1]) / GIB
        axes.axhline(limit, color=INK, linewidth=1, linestyle="--",
                     label=dollars(f"{clean(headroom.gpu, 40)}, less CUDA context"))
        axes.set_ylim(0, max(*bottom, limit) * 1.12)
    else:
        axes.set_ylim(0, max([*bottom, 1e-9]) * 1.12)
    axes.set_xticks(range(len(rows)), names)
    axes.set_ylabel("GiB (2³⁰ bytes), in tensors")
    axes.set_title(dollars(about(ledger)), loc="left", fontsize=7.5, color=QUIET, wrap=True)
    plain_frame(axes)
    handles, names = axes.get_legend_handles_labels()
    # As the bars are stacked: the last on top.
    axes.legend(handles[::-1], names[::-1], fontsize=7.5, frameon=False, loc="upper left",
                bbox_to_anchor=(1.0, 1.0), handlelength=1.6)


def over_time(axes: Any, ledger: Ledger, events: tuple[tuple[str, ByKind], ...]) -> None:
    """Live bytes after every event, with the phases below."""
    positions = range(len(events))
    bottom = [0.0] * len(events)
    for kind in present(ledger):
        top = [low + by_kind.get(kind, 0) / GIB for low, (_, by_kind) in zip(bottom, events, strict=True)]
        axes.fill_between(positions, bottom, top, step="post", color=colour(kind).light, linewidth=0)
        bottom = top
    starts: dict[str, int] = {}
    for i, (moment, _) in enumerate(events):
        starts.setdefault(dollars(clean(moment.split("/")[0], 20)), i)
    axes.set_xticks(list(starts.values()), list(starts), rotation=30, ha="left", fontsize=7.5)
    axes.set_xlim(0, max(len(events) - 1, 1))
    axes.set_ylim(0, max([*bottom, 1e-9]) * 1.05)
    axes.set_ylabel("GiB after each event")
    plain_frame(axes)


def plain_frame(axes: Any) -> None:
    """No frame on the right and above; quiet axes."""
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(QUIET)
    axes.tick_params(colors=QUIET)
