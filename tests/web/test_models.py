"""The model is found by typing: name, alias, hub id, family, a slip of the finger; by keyboard, and said."""

from __future__ import annotations

from typing import Any

import pytest

from peakmem.tables.models import find_model, presets
from tests.web.conftest import until

BOX = "form.form [name=model]"


def offered(page: Any, text: str) -> list[str]:
    page.fill(BOX, text)
    return page.locator("#models [role=option] b").all_inner_texts()


@pytest.mark.parametrize(("text", "first"), [
    ("llama3", "llama-3.1-8b"), ("LLAMA 3.1 70", "llama-3.1-70b"), ("vicuna-7b", "llama-2-7b"),
    ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"), ("qwen2.5 7b", "qwen2.5-7b"), ("whisper", "whisper-tiny")])
def test_what_people_type_is_found(page: Any, text: str, first: str) -> None:
    assert offered(page, text)[0].startswith(first[:8]) and first in offered(page, text)


def test_every_alias_leads_where_the_engine_leads(page: Any) -> None:
    aliases = [alias for row in presets().values() for alias in row.aliases]
    assert len(aliases) > 5
    for alias in aliases[:: max(1, len(aliases) // 12)]:
        assert offered(page, alias)[0] == find_model(alias).name, alias


@pytest.mark.parametrize(("slip", "meant"), [
    ("lama-3.1-8b", "llama-3.1-8b"), ("gtp2", "gpt2"), ("mistrall7b", "mistral-7b")])
def test_did_you_mean(page: Any, slip: str, meant: str) -> None:
    near = offered(page, slip)
    assert meant in [name[:len(meant)] for name in near]
    page.fill(BOX, "gtp2")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('.error').textContent.includes('Did you mean')")
    assert offered(page, "zzzzqqqq") == [] and "No model is called that" in page.inner_text(".modelbox .said")
    page.keyboard.press("Escape")


def test_by_keyboard(page: Any) -> None:
    """ARIA's combobox: arrows walk and are said, Enter takes, Escape goes back, Tab takes what was typed."""
    box = page.locator(BOX)
    assert box.get_attribute("role") == "combobox" and box.get_attribute("aria-expanded") == "false"
    assert page.get_by_role("combobox", name="model").count() == 1
    box.focus()
    page.keyboard.press("ArrowDown")
    assert box.get_attribute("aria-expanded") == "true"
    at = "document.getElementById(document.activeElement.getAttribute('aria-activedescendant'))"
    assert page.evaluate(at + ".textContent").startswith("llama-3.1-8b")
    page.keyboard.press("ArrowDown")
    assert page.evaluate(at + ".getAttribute('aria-selected')") == "true"
    assert page.locator("#models [aria-selected=true]").count() == 1
    page.keyboard.press("Escape")
    assert box.input_value() == "llama-3.1-8b" and not page.locator("#models").is_visible()
    page.keyboard.type("pythia 160")
    assert page.inner_text("#spoken") == f"{page.locator('#models [role=option]').count()} model" + (
        "s" if page.locator("#models [role=option]").count() > 1 else "")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    until(page, "document.querySelector('.about').textContent.startsWith('pythia-160m')")
    assert "model=pythia-160m" in page.evaluate("location.hash")
    page.keyboard.press("Control+a")
    page.keyboard.type("gpt2")
    page.keyboard.press("Tab")
    until(page, "document.querySelector('.about').textContent.startsWith('gpt2,')")
    page.go_back()
    until(page, "document.querySelector('.about').textContent.startsWith('pythia-160m')")
    assert box.input_value() == "pythia-160m"


def test_by_mouse_every_model_is_there(page: Any) -> None:
    page.click(BOX)
    names = page.locator("#models [role=option] b").all_inner_texts()
    assert set(names) == {"custom", *presets()}
    page.locator("#models [role=option]", has_text="gpt2-large").click()
    until(page, "document.querySelector('.about').textContent.startsWith('gpt2-large')")
    assert not page.locator("#models").is_visible()
