"""What is not as it was at first: marked on its fold, counted, taken back by mouse and by keyboard."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from peakmem.quantity import gib
from peakmem.setup import FIELDS
from tests.web.conftest import START, until
from tests.web.test_calculator import drawn, settle


def marks(page: Any) -> dict[str, str]:
    found: dict[str, str] = page.eval_on_selector_all("form.form summary", """all => Object.fromEntries(all.map((one) =>
        [one.firstElementChild.textContent, one.querySelector('.mark-set').textContent.trim()]))""")
    return {name: text for name, text in found.items() if text}


def test_a_closed_fold_says_what_is_changed_in_it(opened: Any, address: str) -> None:
    page = opened(address + START + "&lora_rank=16&gpus=1&clip=yes&state_dtype=bf16&layers=8")
    until(page, "document.querySelector('.mark-set').textContent !== ''")
    assert marks(page) == {"Its size": "1 changed: layers 8", "optimizer": "2 changed: state dtype bf16, clip yes",
                           "Sharing, LoRA, accumulation": "1 changed: LoRA rank 16"}
    assert page.inner_text(".resetter .small") == "4 changed"
    assert page.eval_on_selector_all("form.form details[open]", "all => all.length") == 0


def test_one_goes_back_by_keyboard(page: Any) -> None:
    first = drawn(page)
    page.locator("summary", has_text="optimizer").click()
    page.check("form.form [name=clip]")
    page.select_option("form.form [name=checkpoint]", "full")
    settle(page)
    back = page.get_by_role("button", name="checkpoint: back to none")
    back.focus()
    page.keyboard.press("Enter")
    until(page, "document.querySelector('form [name=checkpoint]').value === 'none'")
    assert page.evaluate("document.activeElement.name") == "checkpoint" and not back.is_visible()
    assert page.is_checked("form.form [name=clip]")
    every = page.get_by_role("button", name="Reset all")
    every.focus()
    page.keyboard.press("Space")
    until(page, "!document.querySelector('form [name=clip]').checked")
    settle(page)
    assert drawn(page) == first and marks(page) == {} and page.inner_text(".resetter .small") == "Nothing changed"
    assert page.evaluate("document.activeElement.textContent") == "Reset all"
    assert every.get_attribute("aria-disabled") == "true"
    page.go_back()
    until(page, "document.querySelector('form [name=clip]').checked")


def test_all_goes_back_also_what_is_wrong_or_without_effect(opened: Any, address: str) -> None:
    page = opened(address + START)
    page.evaluate("(hash) => { location.hash = hash; }", START + "&generate=9&batch=abc&hidden=100&loss_chunks=4&gpu=X")
    until(page, "document.querySelector('.error').textContent !== ''")
    page.get_by_role("button", name="Reset all").click()
    until(page, "document.querySelector('.error').textContent === ''")
    settle(page)
    assert page.evaluate("location.hash") == START and page.locator(".wrong").count() == 0


@pytest.mark.parametrize("name,value,told", [
    ("batch", "1", "1 sequence"), ("batch", "3", "3 sequences"), ("sequence", "1", "1 token"),
    ("sequence", "4096", "4,096 tokens"), ("accumulation", "1", "1 micro-batch"),
    ("accumulation", "2", "2 micro-batches"), ("lora_rank", "0", "off"), ("lora_rank", "16", "rank 16"),
    ("gpus", "1", "1 GPU"), ("gpus", "8", "8 GPUs")])
def test_sliders_say_what_they_are_at(page: Any, name: str, value: str, told: str) -> None:
    slider = f"[data-field={name}] [type=range]"
    page.evaluate("(hash) => { location.hash = hash; }", START + f"&{name}={value}")
    until(page, f"document.querySelector('{slider}').getAttribute('aria-valuetext') === {json.dumps(told)}")
    assert page.input_value(f"form.form [name={name}]") == value
    assert (page.input_value(slider) == "0") == (told in ("off", "1 sequence", "1 token", "1 micro-batch", "1 GPU"))


def test_every_slider_has_words(page: Any) -> None:
    for slider in page.locator("input[type=range]").all():
        words = slider.get_attribute("aria-valuetext")
        assert words.strip() and "undefined" not in words
    assert page.locator("form.form input[type=range]").count() == 6 <= len(FIELDS)


def test_the_command_shows_what_is_looked_at(page: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from peakmem.cli import main

    def copied(what: str) -> str:
        page.get_by_role("button", name=what).click()
        return str(page.inner_text(".copied"))

    assert "--timeline" not in copied("command line")
    page.get_by_role("button", name="Over time", exact=True).click()
    assert page.is_hidden(".copied")
    words = shlex.split(copied("command line"))
    assert words[-1] == "--timeline" and main(words[1:]) == 0 and "Over time: " in capsys.readouterr().out
    exec(copied("Python"), {})
    assert page.inner_text(".peak") and capsys.readouterr().out.count("\n") > 1000
    page.get_by_role("button", name="By moment", exact=True).click()
    page.get_by_role("button", name="Pin this").click()
    page.fill("form.form [name=batch]", "2")
    settle(page)
    lines = copied("command line").splitlines()
    assert len(lines) == 2 and "--timeline" not in lines[0]
    assert main(shlex.split(lines[1])[1:]) == 1  # they differ
    assert page.locator(".pinned tbody td").nth(1).inner_text() in capsys.readouterr().out


@pytest.mark.parametrize("size", [2**40 - 1, 2**40, 3 * 2**40, 5 * 2**50, 1023 * 2**30, 12, 2**20])
def test_sizes_are_written_alike(page: Any, size: int) -> None:
    assert page.evaluate("async (n) => (await import('./format.js')).gib(n)", size) == gib(size)
    assert ("TiB" in gib(size)) == (size >= 2**40)


def test_paper_has_the_colours_and_no_empty_pages(page: Any) -> None:
    """Browsers leave backgrounds out of what they print; what is longer than a page must not jump to the next."""
    page.emulate_media(media="print")
    for one in (".bytes span", ".s", ".strip .bars span", ".cell.held > span", ".gauge .seg", ".bar .part"):
        assert page.locator(one).first.evaluate("x => getComputedStyle(x).printColorAdjust") == "exact", one
    for one, inside in (("pm-levers", "auto"), ("pm-ledger", "auto"), (".lever", "avoid"), (".rule", "avoid")):
        assert page.locator(one).first.evaluate("x => getComputedStyle(x).breakInside") == inside, one


def test_what_is_pressed_is_large_enough(page: Any) -> None:
    from tests.web.test_access import AXE

    if not AXE.exists():
        pytest.skip("axe-core is not there: npm ci")
    page.wait_for_selector(".levers li")
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run(document, {runOnly: {type: 'rule', values: ['target-size']}})")
    assert [node["target"] for one in found["violations"] for node in one["nodes"]] == []
