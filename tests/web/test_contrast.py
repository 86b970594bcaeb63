"""What axe does not measure: every colour of the page against what it lies on, in both themes."""

from __future__ import annotations

import itertools
import re

import pytest

from peakmem.views.colours import COLOURS
from peakmem.web.colours_css import contrast, css, ink_on
from peakmem.web.scripts import asset

TEXT, MARK = 4.5, 3.0


def variables(theme: str) -> dict[str, str]:
    """The custom properties of base.css in one theme."""
    sheet = asset("base.css")
    start = ":root {" if theme == "light" else ':root[data-theme="dark"] {'
    block = sheet.split(start)[1].split("}")[0]
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{3,6})", block))


def full(colour: str) -> str:
    return colour if len(colour) == 7 else "#" + "".join(2 * c for c in colour[1:])


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text(theme: str) -> None:
    found = {name: full(colour) for name, colour in variables(theme).items()}
    for ground, ink in itertools.product(("ground", "raised"), ("ink", "quiet", "accent", "bad", "good")):
        assert contrast(found[ground], found[ink]) >= TEXT, (theme, ground, ink)
    assert contrast(found["ground"], found["edge"]) >= MARK


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_marks_and_their_letters(theme: str) -> None:
    grounds = [full(variables(theme)[name]) for name in ("ground", "raised")]
    for kind, look in COLOURS.items():
        shade = getattr(look, theme)
        assert contrast(shade, ink_on(shade)) >= TEXT, (theme, kind)
        assert contrast(shade, grounds[0]) >= MARK, (theme, kind)


def test_the_same_seven_everywhere() -> None:
    sheet = css()
    for kind, look in COLOURS.items():
        assert f"--{kind}:{look.light};" in sheet and f"--{kind}:{look.dark};" in sheet
    for name in ("base.css", "figures.css", "calculator.css"):
        used = set(re.findall(r"#[0-9a-fA-F]{6}\b", asset(name)))
        assert not used & {look.light for kind, look in COLOURS.items()} - {"#2f68b0", "#ad1500", "#17603c"}, name


def test_both_dark_blocks_say_the_same() -> None:
    blocks = re.findall(r"color-scheme: dark;(.*?)\}", asset("base.css"), re.S)
    assert len(blocks) == 2 and "".join(blocks[0].split()) == "".join(blocks[1].split())
    light, paper = (dict(re.findall(r"--([\w-]+): (#[0-9a-f]{3,6})", block))
                    for block in re.findall(r"color-scheme: light;(.*?)\}", asset("base.css"), re.S))
    assert light == paper and len(light) > 8
