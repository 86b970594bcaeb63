"""Lines made of styled pieces. Without a terminal the styles are dropped; nothing is said by style alone."""

from __future__ import annotations

from collections.abc import Iterable

Span = tuple[str, str]
"""Text and style: "", "strong", "dim", "good", "bad", or the name of a kind."""
Line = list[Span]


def plain(lines: Iterable[Line]) -> str:
    """The lines as text, each ended by a newline."""
    return "".join("".join(text for text, _ in line).rstrip() + "\n" for line in lines)


def wrapped(text: str, width: int, first: str = "", rest: str = "", style: str = "", most: int = 0) -> list[Line]:
    """Text in lines of at most `width` columns, the first begun with `first`, the others with `rest`.

    most: lines that are shown; what is cut ends in "…". 0: all.
    """
    lines: list[str] = []
    current, fresh = first, True
    for word in text.split():
        while True:
            room = width - len(current) - (0 if fresh else 1)
            if len(word) <= room:
                current += word if fresh else " " + word
                fresh = False
                break
            if not fresh:
                lines.append(current)
                current, fresh = rest, True
            elif room <= 0:
                room = 1
            if fresh and len(word) > width - len(current):
                cut = max(1, width - len(current))
                at = max(word.rfind(sign, 1, cut) + 1 for sign in "·/,") or cut
                lines.append(current + word[:at])
                word, current = word[at:], rest
    if not fresh or not lines:
        lines.append(current)
    if most and len(lines) > most:
        lines = lines[:most]
        lines[-1] = lines[-1][: width - 2].rstrip() + " …"
    return [[(line, style)] for line in lines]


def heading(text: str) -> list[Line]:
    """An empty line and a title."""
    return [[], [(text, "strong")]]
