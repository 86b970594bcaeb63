"""Colours on a terminal. The only file that imports rich."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TextIO

from peakmem.views.colours import COLOURS, ink
from peakmem.views.layout import Line

if TYPE_CHECKING:
    from rich.console import Console

STYLES = {"": "", "strong": "bold", "dim": "dim", "good": "bold green", "bad": "bold red"}


def show(lines: Callable[[int], list[Line]], file: TextIO) -> None:
    """Print lines, made for the terminal's width, with the colours that it has.

    Where they are more than the terminal has rows, the answer has scrolled away: it is said again at the end.
    """
    from rich.console import Console

    console = Console(file=file, highlight=False, emoji=False, markup=False)
    made = lines(max(60, min(100, console.width)))
    put(console, made)
    if len(made) >= console.height:
        end = next((i for i, line in enumerate(made) if not line), 0)
        put(console, [[], *made[: min(end, 2)]])


def put(console: Console, lines: Iterable[Line]) -> None:
    """Print lines on a console of rich."""
    from rich.style import Style
    from rich.text import Text

    styles = {name: Style.parse(text) for name, text in STYLES.items()}
    styles |= {kind: Style(color=ink(look.light), bgcolor=look.light)
               for kind, look in COLOURS.items()}
    for line in lines:
        text = Text(no_wrap=True, overflow="ignore", end="\n")
        for piece, style in line:
            text.append(piece, styles.get(style, Style()))
        console.print(text, crop=False)
