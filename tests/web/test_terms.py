"""Ways in, words that are explained, sections of the header: by mouse and by keyboard."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from peakmem.cli import main
from peakmem.tables.glossary import WORDS
from peakmem.web.answer import estimate_json
from peakmem.web.doors import COMMANDS, STATES
from peakmem.web.link import from_url
from peakmem.web.page import index
from peakmem.web.scripts import asset
from tests.web.conftest import START, until

ROOT = Path(__file__).parent.parent.parent


def test_a_word_is_explained_where_it_stands(page: Any) -> None:
    word = page.get_by_role("button", name="autocast: what is that?").first
    word.scroll_into_view_if_needed()
    word.focus()
    page.keyboard.press("Enter")
    card = page.locator("#term-card")
    assert card.is_visible() and "weights stay in fp32" in card.inner_text()
    assert "weights stay in fp32" in page.inner_text("#spoken") and word.get_attribute("aria-expanded") == "true"
    box = card.bounding_box()
    assert box["x"] >= 0 and box["x"] + box["width"] <= 1280 and box["y"] + box["height"] <= 900
    page.keyboard.press("Escape")
    assert not card.is_visible() and word.get_attribute("aria-expanded") == "false"
    assert page.evaluate("document.activeElement.textContent") == "autocast"


def test_every_marked_word_is_in_the_glossary() -> None:
    marked = re.findall(r"\[\[(?:[^\]|]+\|)?([^\]|]+)\]\]", asset("index.html"))
    assert len(marked) > 8 and set(marked) <= set(WORDS)
    read = re.sub(r"<script\b.*?</script>", "", index("baked", "", "", ""), flags=re.DOTALL)  # data has lists of lists
    assert "[[" not in read and 'title="The usual optimizer' in read


@pytest.mark.parametrize(("precision", "words"), [("amp-bf16", "16-bit copy of its inputs"), ("megatron", "NVIDIA"),
                                                   ("mixed", "keeping in 32"), ("fp32", "range of fp32")])
def test_every_recipe_is_explained_beside_its_cells(page: Any, precision: str, words: str) -> None:
    page.select_option("pm-cells [name=precision]", precision)
    page.locator("pm-cells .means button").click()
    assert words in page.inner_text("#term-card")


def test_levers_and_choices_say_what_they_are(page: Any) -> None:
    page.locator("#levers").scroll_into_view_if_needed()
    lever = page.locator("li.lever[data-name='full checkpointing']")
    lever.get_by_role("button", name="what is it?").click()
    assert "computing them again" in page.inner_text("#term-card")
    page.keyboard.press("Escape")
    until(page, "document.querySelector('.beside button')")
    page.locator(".beside button", has_text="torchtitan").click()
    assert "on many GPUs" in page.inner_text("#term-card")
    page.keyboard.press("Escape")
    page.select_option("form.form [name=implementation]", "torchtitan")
    until(page, "document.querySelector('[data-field=implementation] .said').textContent.includes('PyTorch’s own')"
          .replace("’", "\\'"))


@pytest.mark.parametrize("width", [1280, 320])
def test_every_section_is_in_the_header_and_the_current_one_is_marked(opened: Any, address: str, width: int) -> None:
    page = opened(address + START, viewport={"width": width, "height": 800})
    ids = page.eval_on_selector_all("main section", "all => all.map((one) => one.id)")
    links = page.eval_on_selector_all("header nav a", "all => all.map((one) => one.getAttribute('href').slice(1))")
    assert links == ids and len(ids) > 9
    for at in ("why", "levers", "references"):
        page.locator(f"header nav a[href='#{at}']").click()
        until(page, f"document.querySelector('header nav [aria-current]')?.getAttribute('href') === '#{at}'")
        assert page.locator("header nav [aria-current]").count() == 1
        page.evaluate("scrollTo(0, 0)")


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (320, 700)])
def test_five_ways_in_on_the_first_screen(opened: Any, address: str, width: int, height: int) -> None:
    page = opened(address + START, viewport={"width": width, "height": height})
    doors = page.locator(".doors a")
    assert doors.count() == 5
    for door in doors.all():
        box = door.bounding_box()
        assert box["y"] + box["height"] <= height and box["x"] + box["width"] <= width


@pytest.mark.parametrize(("door", "name"), [("Fit a 24 GB card", "card"), ("Plan 64 GPUs", "plan")])
def test_a_door_sets_what_it_says(page: Any, door: str, name: str) -> None:
    page.locator(".doors a", has_text=door).click()
    model = STATES[name]["model"]
    until(page, f"document.querySelector('.about').textContent.startsWith('{model}')")
    found = from_url(page.evaluate("location.href"))
    assert {**found["settings"], "model": found["model"]} == {key: str(value) for key, value in STATES[name].items()}
    box = page.locator("pm-calculator .headline").bounding_box()
    assert box["y"] >= 0 and box["y"] + box["height"] <= 900
    page.go_back()
    until(page, "document.querySelector('.about').textContent.startsWith('llama-3.1-8b')")


def test_the_commands_shown_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.json").write_text((ROOT / "examples/llama-3.1-8b/config.json").read_text())
    (tmp_path / "run.log").write_text(
        "CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 79.15 GiB total capacity; 77.00 GiB already allocated; "
        "1.00 MiB free; 78.00 GiB reserved in total by PyTorch)")
    for line in COMMANDS.splitlines():
        if line.startswith("peakmem ") and "serve" not in line:
            words, _, file = line.partition(" > ")
            assert main(shlex.split(words)[1:]) in (0, 1), line
            out = capsys.readouterr().out
            assert out
            if file:
                (tmp_path / file).write_text(out)
    body = re.search(r"-d '(.*)'", COMMANDS)
    assert body and '"peak"' in estimate_json(body[1])


@pytest.mark.parametrize(("width", "height"), [(1280, 720), (1280, 900), (920, 800), (1000, 640)])
def test_the_header_hides_nothing_of_the_answer(opened: Any, address: str, width: int, height: int) -> None:
    page = opened(address + START, viewport={"width": width, "height": height})
    page.evaluate("document.querySelector('.stage').scrollIntoView({ block: 'center' })")
    header, peak = page.locator("header").bounding_box(), page.locator(".peak").bounding_box()
    assert header["height"] < 56 and peak["y"] >= header["y"] + header["height"] - 1
    page.locator(".doors a", has_text="Plan 64 GPUs").click()
    until(page, "document.querySelector('.about').textContent.startsWith('llama-3.1-70b')")
    assert page.locator(".peak").bounding_box()["y"] >= header["height"] - 1
