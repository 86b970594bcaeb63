"""For everybody: axe, both themes, narrow screens, print, nothing that jumps."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from peakmem.views.colours import COLOURS
from peakmem.web.scripts import scripts, shipped
from tests.web.conftest import START

ROOT = Path(__file__).parent.parent.parent
AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"


@pytest.mark.parametrize("width", [1280, 320])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe(opened: Any, address: str, theme: str, width: int) -> None:
    if not AXE.exists():
        pytest.skip("axe-core is not there: npm ci")
    page = opened(address + START, color_scheme=theme, viewport={"width": width, "height": 800})
    page.wait_for_selector(".levers li")
    page.eval_on_selector_all("details", "all => all.forEach((one) => { one.open = true; })")
    page.get_by_role("button", name="Pin this").click()
    page.evaluate(AXE.read_text())
    for view in ("Over time", "Numbers", "By moment"):
        page.get_by_role("button", name=view, exact=True).click()
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        assert [(one["id"], [node["target"] for node in one["nodes"]][:3]) for one in found["violations"]] == [], view


@pytest.mark.parametrize("width", [320, 360, 768, 1280, 1920])
def test_nothing_is_wider_than_the_screen(opened: Any, address: str, width: int) -> None:
    page = opened(address + START, viewport={"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_theme_can_be_chosen(page: Any) -> None:
    ground = "getComputedStyle(document.documentElement).backgroundColor"
    assert page.evaluate(ground) == "rgb(255, 255, 255)"
    page.get_by_role("button", name="Dark").click()
    assert page.evaluate(ground) == "rgb(22, 24, 29)"
    page.reload()
    page.wait_for_selector("html.ready")
    assert page.evaluate(ground) == "rgb(22, 24, 29)"


@pytest.mark.parametrize("width", [412, 1280])
def test_nothing_jumps(opened: Any, address: str, width: int) -> None:
    page = opened(address + START, viewport={"width": width, "height": 820})
    page.wait_for_selector(".levers li")
    page.wait_for_timeout(300)
    shift = page.evaluate("""new Promise((resolve) => { let sum = 0; new PerformanceObserver((list) => {
        for (const entry of list.getEntries()) if (!entry.hadRecentInput) sum += entry.value; }).observe(
        { type: 'layout-shift', buffered: true }); setTimeout(() => resolve(sum), 200); })""")
    assert shift < 0.01


def test_print(opened: Any, address: str) -> None:
    """Light whatever the screen is, all that is folded open, and nothing to press."""
    page = opened(address + START, color_scheme="dark")
    page.get_by_role("button", name="Light").click()
    page.get_by_role("button", name="Dark").click()
    page.emulate_media(media="print", color_scheme="dark")
    of = "getComputedStyle(document.documentElement)"
    assert page.evaluate(of + ".backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate(of + ".getPropertyValue('--weights')") == COLOURS["weights"].light
    assert not page.locator("form.form").is_visible() and not page.locator("#theme").is_visible()
    assert page.locator("pm-ledger details li").first.is_visible()
    assert page.pdf()[:5] == b"%PDF-"


def test_print_loses_nothing(opened: Any, address: str) -> None:
    """What is a button on the screen is a word on paper; settings are stated; the key lies below the axis."""
    page = opened(address + START + "&batch=3", viewport={"width": 794, "height": 1123})
    page.wait_for_selector(".levers li")
    page.emulate_media(media="print")
    for part in ("[data-lever=LoRA]", ".product", "table.grid thead button", ".legend .key",
                 "pm-growth [aria-pressed=true]"):
        assert page.locator(part).first.is_visible(), part
    words = page.inner_text(".about")
    assert all(one in words for one in ("batch 3", "sequence 2048", "precision mixed", "optimizer adamw"))
    chart, marks = page.locator(".picture svg").bounding_box(), page.locator(".marks").bounding_box()
    assert marks["y"] >= chart["y"] + chart["height"]
    assert not page.locator(".sticky .take button").first.is_visible() and not page.locator(".guesses").is_visible()


def test_reduced_motion(opened: Any, address: str) -> None:
    page = opened(address + START, reduced_motion="reduce")
    assert page.evaluate("getComputedStyle(document.querySelector('.strip .bars span')).transitionDuration") == "0s"


def test_every_control_has_a_name(page: Any) -> None:
    page.eval_on_selector_all("details", "all => all.forEach((one) => { one.open = true; })")
    tree = page.locator("main").aria_snapshot()
    for role in ("button", "combobox", "textbox", "slider", "spinbutton", "checkbox"):
        assert f"- {role}:" not in tree and f"- {role}\n" not in tree, role


def test_our_scripts_are_small() -> None:
    assert len(gzip.compress("".join(shipped(name) for name in (*scripts(), "worker.js")).encode(), 9)) <= 40_000


def test_files_are_short() -> None:
    for path in (ROOT / "src/peakmem/web/assets").iterdir():
        assert len(path.read_text().splitlines()) <= 300, path.name


def test_axe_of_what_opens(opened: Any, address: str) -> None:
    """The list of models, untouched and searched; an explained word; an out-of-memory message."""
    if not AXE.exists():
        pytest.skip("axe-core is not there: npm ci")
    page = opened(address + START)
    page.evaluate(AXE.read_text())
    opens = {"models": lambda: page.click("form.form [name=model]"),
             "found": lambda: page.fill("form.form [name=model]", "qwen"),
             "back": lambda: page.keyboard.press("Escape"),
             "word": lambda: page.locator("button.term").first.click(),
             "message": lambda: page.get_by_role("button", name="Show an example").click()}
    for name, act in opens.items():
        act()
        page.wait_for_timeout(400)
        found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        assert [(one["id"], [node["target"] for node in one["nodes"]][:3]) for one in found["violations"]] == [], name
