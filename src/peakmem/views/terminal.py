"""Colours on a terminal. The only file that imports rich."""

from __future__ import annotations

from collections.abc import Callable
from typing import TextIO

from peakmem.views.colours import COLOURS
from peakmem.views.layout import Line

STYLES = {"": "", "strong": "bold", "dim": "dim", "good": "bold green", "bad": "bold red"}


def show(lines: Callable[[int], list[Line]], file: TextIO) -> None:
    """Print lines, made for the terminal's width, with the colours that it has."""
    from rich.console import Console
    from rich.style import Style
    from rich.text import Text

    console = Console(file=file, highlight=False, emoji=False, markup=False)
    styles = {name: Style.parse(text) for name, text in STYLES.items()}
    styles |= {kind: Style(color="white" if kind in DARK else "black", bgcolor=look.light)
               for kind, look in COLOURS.items()}
    for line in lines(max(60, min(100, console.width))):
        text = Text(no_wrap=True, overflow="ignore", end="\n")
        for piece, style in line:
            text.append(piece, styles.get(style, Style()))
        console.print(text, crop=False)


DARK = frozenset({"weights", "gradients", "activations", "context"})
"""Kinds whose colour carries white letters; the others carry black ones."""
