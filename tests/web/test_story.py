"""The figures of the story: each says its message untouched, and changes when touched."""

from __future__ import annotations

import json
from typing import Any

import pytest

from peakmem.web.answer import estimate_json
from tests.web.conftest import START, until


def test_cells_follow_precision_and_optimizer(page: Any) -> None:
    cells = page.locator("pm-cells .bytes span")
    assert cells.count() == 16 and "104.3 GiB (112 GB)" in page.inner_text("pm-cells .total")
    page.select_option("pm-cells [name=optimizer]", "sgd")
    assert cells.count() == 8
    page.select_option("pm-cells [name=precision]", "megatron")
    page.select_option("pm-cells [name=optimizer]", "adamw")
    assert cells.count() == 18 and "18 bytes" in page.inner_text("pm-cells .total")


@pytest.mark.parametrize("width,height", [(1280, 720), (320, 700)])
def test_the_first_screen_can_be_touched(opened: Any, address: str, width: int, height: int) -> None:
    """Without scrolling: something to change, what it changes, and the way to the calculator."""
    page = opened(address, viewport={"width": width, "height": height})
    for part in ("pm-cells select", "pm-cells .bytes span", "header nav a[href='#size']"):
        box = page.locator(part).first.bounding_box()
        assert box["y"] + box["height"] <= height and box["x"] + box["width"] <= width, part


def test_a_lever_tells_of_its_kind_where_the_peak_moves(page: Any) -> None:
    lever = page.locator("li.lever", has=page.locator("[data-lever='full checkpointing']"))
    told = "Falls: activations 13.30 GiB → 1.54 GiB. The peak is then in backward, at embed_tokens."
    assert told in lever.inner_text()


def test_growth_shows_who_cares(page: Any) -> None:
    page.get_by_role("button", name="batch × 250").click()
    amounts = page.locator("pm-growth .amount").all_inner_texts()
    assert [text.split("\n")[0].split(" G")[0].split(" M")[0][:7].strip() for text in amounts][0].startswith("× 1")
    assert "× 250" in amounts[1] and "× 1 " in amounts[2]
    assert page.get_by_role("button", name="batch × 250").get_attribute("aria-pressed") == "true"


def test_products_say_what_they_read(page: Any) -> None:
    page.locator(".product").first.click()
    assert page.locator("[data-tensor=W2]").get_attribute("class").endswith("off")
    assert "off" not in page.locator("[data-tensor=a1]").get_attribute("class")
    page.locator(".product").last.hover()
    assert page.locator("[data-tensor=a1]").get_attribute("class").endswith("off")


def test_the_grid_by_keyboard_slider_and_column(page: Any) -> None:
    slider = page.get_by_role("slider", name="Moment of the step")
    slider.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    words = slider.get_attribute("aria-valuetext")
    assert words.startswith("F1: forward, layer 1. Allocated: z1 (8.0 MiB), a1 (8.0 MiB); freed z1 (8.0 MiB)")
    page.keyboard.press("End")
    assert slider.get_attribute("aria-valuetext").startswith("clear")
    page.locator("table.grid thead button").nth(4).click()
    assert "only then can a3 go" in page.inner_text("pm-grid .words")
    page.keyboard.press("ArrowRight")
    assert slider.get_attribute("aria-valuetext").startswith("B2")
    assert page.locator(".moments button").nth(5).get_attribute("aria-current") == "true"


def test_the_grid_is_the_engines(page: Any) -> None:
    found = json.loads(estimate_json('{"ask":"three-layers"}'))
    for i, row in enumerate(found["tensors"]):
        cells = page.locator("table.grid tbody tr").nth(i).locator("td.cell")
        assert [cells.nth(j).get_attribute("class").split()[1:2] for j in range(9)] == [
            [cell] if cell else [] for cell in row["cells"]] or row["cells"][0] == "", row["name"]


def test_guess_first(page: Any) -> None:
    assert not page.locator(".height").first.is_visible()
    page.get_by_role("button", name="F1: guess forward, layer 1").click()
    assert "Not quite" in page.inner_text(".answer") and "backward, layer 3" in page.inner_text(".answer")
    assert page.locator(".height").first.is_visible()


def test_play(page: Any) -> None:
    page.get_by_role("button", name="Play the step").click()
    until(page, "document.querySelector('pm-grid input').value === '2'")


def test_rules_follow_the_configuration(page: Any) -> None:
    before = page.inner_text("pm-ledger")
    assert "14336" in before
    page.fill("input[name=batch]", "7")
    until(page, "document.querySelector('.rule.activations').textContent.includes('7·2048')")


def test_a_lever_is_taken(page: Any) -> None:
    page.wait_for_selector("[data-lever='full checkpointing']")
    page.locator("[data-lever='8-bit optimizer states']").click()
    until(page, "location.hash.includes('optimizer=adamw-8bit')")
    assert page.input_value("form.form [name=optimizer]") == "adamw-8bit"
    until(page, "!document.querySelector('[data-lever=\"8-bit optimizer states\"]')")


def test_a_measured_number_stands_on_the_same_axis(opened: Any, address: str) -> None:
    page = opened(address + "#v=1&model=llama-3.1-8b&gpu=H200+SXM+141GB")
    page.fill("[name=measured-allocated]", "121")
    page.fill("[name=measured-reserved]", "125")
    page.fill("[name=measured-device]", "125.6")
    assert page.locator(".check-bars .bar").count() == 5
    words = page.inner_text(".verdict")
    assert "1.04 GiB above the count" in words and "4.00 GiB reserved" in words and "614.40 MiB" in words


@pytest.mark.parametrize("section", ["bytes", "kinds", "why", "step", "size", "ledger", "levers", "check"])
def test_without_scripts(opened: Any, address: str, section: str) -> None:
    page = opened(address, java_script_enabled=False)
    text = page.inner_text(f"#{section}")
    wanted = {"bytes": "16 bytes a parameter", "kinds": "× 250", "why": "the error and the saved input",
              "step": "Most is in use in B3", "size": "119.96 GiB", "ledger": "14.96 GiB",
              "levers": "full checkpointing",
              "check": "max_memory_allocated"}
    assert wanted[section] in text


def test_the_grid_moves_the_calculators_moment(opened: Any, address: str) -> None:
    page = opened(address + START)
    page.locator("table.grid thead button").nth(2).click()
    assert page.inner_text(".detail h3").startswith("F2")


def test_without_scripts_the_same_is_said(opened: Any, address: str) -> None:
    """The verdict of a page with scripts, rules with numbers and letters, all lines of the check; no table squeezed."""
    page, still = opened(address), opened(address, java_script_enabled=False)
    until(page, "document.querySelector('.fits').textContent.includes('reserved by')")
    spare = page.inner_text(".fits .bad").split(" by ")[1].rstrip(". ")
    assert f"exceeds one H100 SXM 80GB by {spare}" in still.inner_text("#size")
    rules = still.inner_text("#ledger")
    assert "14336" in rules and "Letters:" in rules and "f feed-forward" in rules
    assert still.inner_text("pm-check code") == page.inner_text("pm-check code")
    for column in range(3):
        assert still.locator("pm-products th").nth(column).bounding_box()["width"] > 60
    for figure in still.locator(".figure").all():
        content = figure.evaluate(
            "x => x.lastElementChild.getBoundingClientRect().bottom - x.getBoundingClientRect().top")
        assert figure.bounding_box()["height"] - content < 24
