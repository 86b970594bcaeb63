"""The page speaks of settings by their names, in the width that it has; and a file is read as the command line does."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from peakmem.errors import PeakmemError
from peakmem.readers.hf_config import from_config
from peakmem.web.answer import estimate_json
from tests.web.conftest import until
from tests.web.test_hostile_drop import drop
from tests.web.test_states import LLAMA


def ask(**request: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(estimate_json(json.dumps(request)))
    return found


@pytest.mark.parametrize("settings", ["", "&sequence=512&batch=4", "&optimizer=sgd", "&gpus=8"])
def test_assumptions_and_levers_have_no_flags(opened: Any, address: str, settings: str) -> None:
    page = opened(f"{address}#v=1&model=gpt2{settings}")
    until(page, "document.querySelector('pm-ledger details li') !== null")
    page.eval_on_selector("pm-ledger details", "one => { one.open = true; }")
    assert "precision megatron" in page.inner_text("pm-ledger details")
    page.evaluate("document.getElementById('levers').scrollIntoView()")
    until(page, "document.querySelectorAll('[data-lever]:enabled').length > 2")
    text = page.inner_text("pm-ledger details") + page.inner_text("pm-levers")
    assert not re.search(r"--[a-z]", text) and "Sets LoRA rank 16." in text


def test_a_setting_in_an_assumption_leads_to_its_control(opened: Any, address: str) -> None:
    page = opened(f"{address}#v=1&model=gpt2")
    until(page, "document.querySelector('pm-ledger details li') !== null")
    page.click("pm-ledger summary")
    page.click("pm-ledger a[data-control=precision] >> nth=0")
    assert page.evaluate("document.activeElement.name") == "precision"


def test_parts_say_what_the_texts_say() -> None:
    found = ask(model="gpt2", settings={"sequence": 256, "gpus": 8, "loss_chunks": 4})
    assert found["parts"]["idle"]["lora_targets"] == ["without ", {"field": "lora_rank"}]
    assert set(found["parts"]["idle"]) == set(found["idle"])
    assert len(found["parts"]["notes"]) == len(found["ledger"]["notes"]) > 2
    assert not [part for note in found["parts"]["notes"] for part in note if isinstance(part, str) and "--" in part]


def test_what_is_left_alone_is_known_to_the_engine() -> None:
    found = ask(ask="refused", model="resnet-50", settings={})
    assert found["only"] and set(found["only"]) <= set(found["refused"])
    for name, errors in found["refused"].items():
        row = next(row for row in ask(ask="tables")["fields"] if row["name"] == name)
        left = [one for one in row["choices"] if one not in errors]
        assert (name in found["only"]) == (left == [row["default"]] if row["choices"] else True), name


@pytest.mark.parametrize("name,value", [("batch", "0"), ("sequence", "0"), ("size-heads", "7")])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_message_has_the_width_of_its_row(opened: Any, address: str, name: str, value: str, width: int) -> None:
    page = opened(f"{address}#v=1&model=gpt2", viewport={"width": width, "height": 900})
    page.eval_on_selector_all("form details", "all => all.forEach((one) => { one.open = true; })")
    before = page.locator(f"[name={name}]").bounding_box()
    page.fill(f"form.form [name={name}]", value)
    said = f"#said-{name.removeprefix('size-')}"
    until(page, f"document.querySelector('{said}').textContent !== ''")
    message, row = page.locator(said).bounding_box(), page.locator(f".fields:has(> .slot > {said})").bounding_box()
    now = page.locator(f"[name={name}]").bounding_box()
    assert message["width"] == pytest.approx(row["width"], abs=1)
    assert message["y"] >= now["y"] + now["height"] and now["width"] == before["width"]


@pytest.mark.parametrize("odd", [
    {"hidden_size": 2.0**60}, {"num_attention_heads": 9007199254740993}, {"num_hidden_layers": 2**64 + 1}])
def test_numbers_of_a_file_are_those_of_the_command_line(page: Any, odd: dict[str, Any]) -> None:
    """JSON.parse would round what is above 2^53, and write a fraction as a whole number."""
    text = json.dumps({**LLAMA, **odd})
    with pytest.raises(PeakmemError) as error:
        from_config(json.loads(text))
    drop(page, "config.json", text.encode())
    until(page, "document.querySelector('.error').textContent !== ''")
    assert page.inner_text(".error") == str(error.value)


def test_a_link_holds_the_numbers_of_a_file_as_they_were(page: Any) -> None:
    odd = {"rope_theta": 10000.0, "eos_token_id": 9007199254740993, "note": 'a  b\\" c'}
    text = json.dumps({**LLAMA, **odd}, indent=1)
    drop(page, "config.json", text.encode())
    until(page, "location.hash.includes('config=')")
    config = parse_qs(urlsplit(page.url).fragment)["config"][0]
    assert json.loads(config) == json.loads(text) and "10000.0" in config and "9007199254740993" in config
    assert "\n" not in config


def test_text_of_a_config_is_its_fields() -> None:
    text = json.dumps(LLAMA)
    assert ask(model="m", config=text) == ask(model="m", config=LLAMA)
    for wrong in (text.replace("{", '{"hidden_size": 1, ', 1), "", "{", "/etc/passwd", "[" * 40, "[1]", "\ud800"):
        found = ask(model="m", config=wrong)
        assert found["error"] and "\n" not in found["error"] and "peakmem failed" not in found["error"], wrong


def test_nothing_shows_through_what_sticks_while_it_is_old(opened: Any, address: str) -> None:
    page = opened(f"{address}#v=1&model=gpt2", viewport={"width": 390, "height": 800})
    page.fill("form.form [name=batch]", "0")
    until(page, "document.documentElement.hasAttribute('data-old')")
    for part in (".stage", ".headline"):
        style = page.eval_on_selector(part, """one => { const it = getComputedStyle(one);
            return [it.opacity, it.position, it.backgroundColor]; }""")
        ground = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert style == ["1", "sticky", ground], part
        assert page.eval_on_selector(f"{part} > *", "one => getComputedStyle(one).opacity") == "0.65"


def test_what_is_not_wrong_is_not_called_so(page: Any) -> None:
    """aria-invalid stands on what is wrong alone."""
    page.fill("[name=measured-allocated]", "-1")
    page.fill("[name=message]", "no message")
    until(page, "document.querySelectorAll('[aria-invalid]').length === 2")
    page.fill("[name=measured-allocated]", "")
    page.fill("[name=message]", "CUDA out of memory. Tried to allocate 20.00 MiB")
    until(page, "!document.querySelector('[name=measured-allocated][aria-invalid]')")
