"""Colours, figure, notebook."""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from itertools import combinations
from pathlib import Path

import pytest

from peakmem.errors import Impossible, Missing
from peakmem.ledger import KINDS, OUTSIDE
from peakmem.views.colours import COLOURS, ink
from peakmem.views.svg import bars, variables

from .golden import check
from .test_text import TIGHT
from .toy import toy

# Machado, Oliveira and Fernandes 2009, severity 1: how linear RGB arrives at each kind of colour blindness.
EYES = {
    "usual": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)),
}
Colour = tuple[float, ...]


def linear(text: str) -> Colour:
    parts = [int(text[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return tuple(c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts)


def contrast(a: str, b: str) -> float:
    """WCAG's ratio."""
    light = sorted(sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear(x))) for x in (a, b))
    return (light[1] + 0.05) / (light[0] + 0.05)


def lab(colour: Colour) -> Colour:
    """CIE 1976, for distances that eyes see."""
    matrix = ((0.4124, 0.3576, 0.1805), (0.2126, 0.7152, 0.0722), (0.0193, 0.1192, 0.9505))
    clipped = [min(1, max(0, c)) for c in colour]
    xyz = [sum(m * c for m, c in zip(row, clipped)) / white for row, white in zip(matrix, (0.95047, 1, 1.08883))]
    x, y, z = (v ** (1 / 3) if v > 0.008856 else 7.787 * v + 16 / 116 for v in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


def apart(a: str, b: str, eye: str) -> float:
    """Distance of two colours as an eye sees them; about 2 is just visible."""
    seen = [lab(tuple(sum(m * c for m, c in zip(row, linear(x))) for row in EYES[eye])) for x in (a, b)]
    return sum((p - q) ** 2 for p, q in zip(*seen)) ** 0.5


def test_every_kind_has_its_own_colour_and_letter() -> None:
    assert tuple(COLOURS) == (*KINDS, *OUTSIDE)
    assert len({look.letter for look in COLOURS.values()}) == len({look.hatch for look in COLOURS.values()}) == 9


@pytest.mark.parametrize(("theme", "ground"), [("light", "#ffffff"), ("dark", "#16181d")])
def test_colours_can_be_told_apart_by_everyone(theme: str, ground: str) -> None:
    chosen = {kind: str(getattr(COLOURS[kind], theme)) for kind in KINDS}
    for colour in chosen.values():
        assert contrast(colour, ground) >= 2.99
    for a, b in combinations(chosen.values(), 2):
        assert all(apart(a, b, eye) >= 10 for eye in EYES)


def test_letters_can_be_read_on_their_colour() -> None:
    for look in COLOURS.values():
        for ground in (look.light, look.dark):
            assert contrast(ink(ground), ground) >= 4.4


def test_svg_is_well_formed_and_needs_nothing() -> None:
    picture = bars(toy(), 6 * 2**30)
    root = ET.fromstring(picture)
    assert root.attrib["role"] == "img" and "peak 6.50 GiB" in root.attrib["aria-label"]
    assert "http" not in picture.replace("http://www.w3.org/2000/svg", "")
    check("bars.svg", picture + "\n")


class Balanced(HTMLParser):
    """Every element is closed, and nothing is fetched."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("br", "line", "rect"):
            self.open.append(tag)
        assert not {"src", "href"} & {name for name, _ in attrs} and tag not in ("script", "link", "img")

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("rect", "line"):
            assert self.open.pop() == tag


def test_notebook() -> None:
    page = toy()._repr_html_()
    reader = Balanced()
    reader.feed(page)
    assert reader.open == []
    assert "prefers-color-scheme: dark" in page and all(look.dark in variables() for look in COLOURS.values())
    check("notebook.html", page + "\n")


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_figure(suffix: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from peakmem.views.figure import save

    path = tmp_path / f"step.{suffix}"
    save(toy(), str(path), TIGHT, timeline=True)
    head = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix]
    first = path.read_bytes()
    assert first.startswith(head)
    save(toy(), str(path), TIGHT, timeline=True)
    assert path.read_bytes() == first


def test_figure_with_a_hostile_name(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from peakmem.views.figure import save

    save(toy(run={"model": "$\\frac{$\x1b\ud800<b>"}), str(tmp_path / "a.svg"))
    ET.parse(tmp_path / "a.svg")


def test_figure_says_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from peakmem.views.figure import save

    with pytest.raises(Impossible, match=r"\.png, \.svg, \.pdf"):
        save(toy(), str(tmp_path / "step.txt"))
    with pytest.raises(Impossible, match="no timeline"):
        save(toy(unroll=None), str(tmp_path / "step.png"), timeline=True)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(Missing, match=r"pip install -e '.\[plot\]'"):
        save(toy(), str(tmp_path / "step.png"))
