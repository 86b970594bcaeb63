"""What stays in sight, where the focus goes, what is taken along: the page in use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.web.conftest import START, until


@pytest.mark.parametrize("height", [900, 720])
def test_nothing_lies_behind_the_chart(page: Any, height: int) -> None:
    """Wherever one has scrolled to among the settings: the headline is in sight with the bars, tools can be pressed."""
    page.set_viewport_size({"width": 1280, "height": height})
    top = page.locator(".form").bounding_box()["y"]
    end = page.locator(".form summary:visible").last.bounding_box()["y"] - height
    page.wait_for_timeout(100)
    for at in (top + 40, (top + end) / 2 + 60, end):
        page.evaluate("y => scrollTo(0, y)", at)
        page.wait_for_timeout(60)
        assert page.locator(".peak").bounding_box()["y"] >= 0
        for button in page.locator(".sticky .take button, .detail h3").all():
            box = button.bounding_box()
            assert box["y"] + box["height"] <= height
            assert button.evaluate("""x => { const at = x.getBoundingClientRect();
                return x.contains(document.elementFromPoint(at.x + at.width / 2, at.y + at.height / 2)); }""")


def test_a_phone_keeps_the_number_above_the_bars(opened: Any, address: str) -> None:
    page = opened(address + START, viewport={"width": 320, "height": 700})
    until(page, "document.querySelector('.fits').textContent.includes('reserved by')")  # the chart is painted anew
    page.locator("form [name=checkpoint]").focus()
    page.wait_for_timeout(100)
    peak, chart, control = (page.locator(one).bounding_box()
                            for one in (".peak", ".picture svg", "form [name=checkpoint]"))
    assert peak["y"] >= 0 and peak["y"] + peak["height"] <= chart["y"] + 4
    assert control["y"] >= chart["y"] + chart["height"]


@pytest.mark.parametrize("name", ["PNG", "SVG"])
def test_a_picture_says_what_it_is_of(opened: Any, address: str, name: str, tmp_path: Path) -> None:
    page = opened(address + "#v=1&model=gpt2&batch=7&gpu=24GiB")
    with page.expect_download() as download:
        page.get_by_role("button", name=name, exact=True).click()
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    if name == "PNG":
        size = path.read_bytes()[16:24]
        wide, high = int.from_bytes(size[:4], "big"), int.from_bytes(size[4:], "big")
        shown = page.locator(".picture svg").bounding_box()
        assert wide == 2 * shown["width"] and high > 2 * shown["height"] + 100
        return
    text = " ".join(page.evaluate("""text => [...new DOMParser().parseFromString(text, "image/svg+xml")
        .querySelectorAll("text")].map((one) => one.textContent)""", path.read_text()))
    for words in (f"gpt2: {page.inner_text('.peak')} at the peak", "batch 7", "precision mixed", "optimizer adamw",
                  "optimizer state", "temporary"):
        assert words in text, words


def test_a_lever_keeps_the_focus_and_its_place(page: Any) -> None:
    page.wait_for_selector("[data-lever='full checkpointing']")
    page.locator("[data-lever='full checkpointing']").scroll_into_view_if_needed()
    tops = "[...document.querySelectorAll('.levers li')].map((x) => x.offsetTop - x.parentElement.offsetTop)"
    before = page.evaluate(tops)
    page.locator("[data-lever='full checkpointing']").focus()
    page.keyboard.press("Enter")
    until(page, "!document.querySelector('[data-lever=\"full checkpointing\"]')")
    assert page.evaluate("document.activeElement.dataset.name") == "full checkpointing"
    after = page.evaluate(tops)
    assert [abs(x - y) < 2 for x, y in zip(before, after)] == [True] * len(before), list(zip(before, after))


def test_what_is_offloaded_is_counted_where_it_lies(page: Any) -> None:
    lever = page.locator("li.lever", has=page.locator("[data-lever='optimizer offload']"))
    assert "then lie in the host’s memory" in lever.inner_text()
    page.locator("[data-lever='optimizer offload']").click()
    until(page, "document.querySelector('.detail').textContent.includes('on the host')")


def test_every_reference_is_cited(page: Any) -> None:
    page.wait_for_selector(".levers li")
    cited = set(page.eval_on_selector_all("a.ref", "all => all.map((one) => one.getAttribute('href').slice(1))"))
    listed = page.eval_on_selector_all(".references li", "all => all.map((one) => one.id)")
    assert set(listed) <= cited
    for link in page.locator("a.ref").all():
        assert link.text_content() == f"[{listed.index(link.get_attribute('href')[1:]) + 1}]"


def test_letters_stand_below_the_formulas_that_use_them(page: Any) -> None:
    assert "f feed-forward" in page.inner_text(".largest") and "V vocabulary" in page.inner_text(".largest")


@pytest.mark.parametrize("model", ["gemma-3-1b", "gpt2"])
def test_parameters_are_said_as_people_say_them(opened: Any, address: str, model: str) -> None:
    page = opened(address + f"#v=1&model={model}")
    assert {"gemma-3-1b": "1.00 billion", "gpt2": "124 million"}[model] in page.inner_text(".about")
    page.click("form.form [name=model]")
    names = page.inner_text("#models")
    assert "e+" not in names and "billion" in names


def test_what_grows_is_told_with_its_sizes(page: Any) -> None:
    page.get_by_role("button", name="batch × 250").click()
    assert "batch 1,000 × 1,024 tokens" in page.inner_text("pm-growth")
    for amount in page.locator("pm-growth .amount").all():
        assert amount.bounding_box()["height"] < 34


@pytest.mark.parametrize("width", [320, 1280])
def test_no_name_of_a_setting_is_cut(opened: Any, address: str, width: int) -> None:
    page = opened(address + START, viewport={"width": width, "height": 800})
    page.select_option("form [name=optimizer]", "adamw-8bit")
    for name in ("precision", "checkpoint", "attention", "optimizer"):
        for select in page.locator(f"select[name={name}]").all():
            assert select.evaluate("""x => { const c = document.createElement('canvas').getContext('2d');
                c.font = getComputedStyle(x).font; return c.measureText(x.selectedOptions[0].text).width; }""") < (
                select.bounding_box()["width"] - 40)


def test_no_rule_is_cut_on_a_phone(opened: Any, address: str) -> None:
    page = opened(address + START, viewport={"width": 320, "height": 700})
    until(page, "document.querySelector('.rule.activations .numbers')")
    assert page.eval_on_selector_all(".rule .formula", "all => all.every((x) => x.scrollHeight <= x.clientHeight + 1)")
