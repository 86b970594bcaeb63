"""One colour and one letter for each kind of memory, the same in every view.

The hues are Okabe and Ito's, darkened until each has 3:1 against white, and lightened for a dark ground; a test
measures that, and the distance between any two as the three kinds of colour blindness see them. The letter says the
same without colour.
"""

from __future__ import annotations

from typing import NamedTuple


class Colour(NamedTuple):
    """title: in words; letter: the pattern; light, dark: on a light and a dark ground; hatch: matplotlib's."""

    title: str
    letter: str
    light: str
    dark: str
    hatch: str


COLOURS: dict[str, Colour] = {
    "weights": Colour("weights", "W", "#2f68b0", "#5f6fd0", ""),
    "gradients": Colour("gradients", "G", "#ad1500", "#cf2a20", "//"),
    "optimizer_state": Colour("optimizer state", "O", "#c0709a", "#8f6a8e", ".."),
    "activations": Colour("activations", "A", "#17603c", "#1eab68", "\\\\"),
    "temporary": Colour("temporary", "T", "#a09629", "#fff08f", "xx"),
    "kv_cache": Colour("KV cache", "K", "#1598df", "#bce9ff", "--"),
    "communication": Colour("communication", "C", "#d06a00", "#ff8d00", "++"),
    "cache": Colour("cache", "c", "#8a8a8a", "#a0a0a0", "||"),
    "context": Colour("context", "x", "#5c5c5c", "#707070", "oo"),
}
"""In the order in which they are stacked: `ledger.KINDS`, then what is no tensor."""

OTHER = Colour("other", "?", "#777777", "#999999", "")


def ink(ground: str) -> str:
    """Black or white, whichever can be read better on a colour."""
    parts = [int(ground[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)
    # At this luminance both have the same contrast by WCAG's formula.
    return "#000000" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.179 else "#ffffff"


def colour(kind: str) -> Colour:
    """The colour of a kind; a kind that this version does not know is grey."""
    return COLOURS.get(kind, OTHER)
