"""Standard output: whatever its encoding, and whether or not somebody still reads it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from peakmem.views.layout import Line, plain

ASCII = str.maketrans({"·": "*", "×": "x", "−": "-", "–": "-", "—": "-", "…": "...", "→": "->", "≤": "<=", "≥": ">=",
                       "²": "^2", "³": "^3", "⁰": "0", "∞": "inf", "≈": "~"})


def say(text: str) -> None:
    """Print text, in signs that the output's encoding has."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.replace("2³⁰", "2^30").translate(ASCII).encode(encoding, "backslashreplace").decode(encoding)
    sys.stdout.write(text)


def show(lines: Callable[[int], list[Line]], width: int = 80) -> None:
    """Print lines made for a width: with colours on a terminal that has them, else as plain text."""
    if coloured():
        from peakmem.views.terminal import show as show_coloured

        show_coloured(lines, sys.stdout)
    else:
        say(plain(lines(width)))


def coloured() -> bool:
    """A terminal, UTF-8, and nobody who asked for none (NO_COLOR, TERM=dumb)."""
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") in ("dumb", ""):
        return False
    if (getattr(sys.stdout, "encoding", "") or "").lower().replace("-", "") != "utf8":
        return False
    from importlib.util import find_spec

    return find_spec("rich") is not None
