"""What the page does with a state that is large, wrong, or just changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from peakmem.quantity import gib
from peakmem.web.answer import estimate_json
from peakmem.web.link import from_url
from tests.web.conftest import START, choose, until

LLAMA = {"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 512, "num_attention_heads": 8,
         "num_key_value_heads": 8, "intermediate_size": 1024, "vocab_size": 1000}
TAKE = ("PNG", "SVG", "CSV", "Pin this, to compare")


def opens(page: Any, text: str, name: str = "config.json") -> None:
    page.set_input_files("input[type=file]", {"name": name, "mimeType": "text/plain", "buffer": text.encode()})


def peak(request: dict[str, Any]) -> str:
    return gib(json.loads(estimate_json(json.dumps(request)))["ledger"]["peak"]["bytes"])


def shows(page: Any, text: str) -> None:
    until(page, f"document.querySelector('.peak').textContent === {json.dumps(text)}")


def follow(page: Any, more: str) -> None:
    page.evaluate("(hash) => { location.hash = hash; }", START + more)


def can_be_taken(page: Any) -> list[bool]:
    return [page.get_by_role("button", name=name, exact=True).is_enabled() for name in TAKE]


def test_a_long_config_is_in_its_link(opened: Any, address: str, page: Any) -> None:
    """9,000 characters: names of classes that an image model counts."""
    config = {"model_type": "vit", "id2label": {str(i): f"class {i}" for i in range(431)}}
    opens(page, json.dumps(config), "vit.json")
    until(page, "location.hash.includes('config=')")
    request = from_url(page.evaluate("location.href"))
    assert request["config"] == config
    want = peak(request)
    shows(page, want)
    shows(opened(page.evaluate("location.href")), want)


def test_one_that_is_too_long_is_kept_and_said(opened: Any, address: str, page: Any) -> None:
    config = {**LLAMA, "note": "x" * 120_000}
    want = peak({"model": "m", "config": LLAMA, "settings": {"gpu": "H100 SXM 80GB"}})
    opens(page, json.dumps(config), "big.json")
    shows(page, want)
    assert "big.json is too long for a link" in page.inner_text("#status")
    page.reload()
    page.wait_for_selector("html.ready")
    shows(page, want)
    choose(page, "gpt2")
    until(page, "document.querySelector('.about').textContent.includes('gpt2')")
    page.go_back()
    shows(page, want)
    other = opened(address + START)
    other.evaluate("(hash) => { location.hash = hash; }", page.evaluate("location.hash"))
    until(other, "document.getElementById('status').textContent.includes('open the file again')")


def test_infinity_in_a_config(opened: Any, address: str, page: Any) -> None:
    """As Mamba-2's files have it; not JSON by its book, but Python's."""
    text = ('{"model_type": "mamba2", "hidden_size": 256, "num_hidden_layers": 2, "vocab_size": 1000, '
            '"state_size": 64, "num_heads": 8, "head_dim": 64, "time_step_limit": [0.0, Infinity], '
            '"note": "NaN, \\"Infinity", '
            '"low": -Infinity, "none": NaN}')
    opens(page, text)
    until(page, "location.hash.includes('Infinity')")
    request = from_url(page.evaluate("location.href"))
    assert request["config"]["time_step_limit"] == [0, float("inf")] and request["config"]["low"] == float("-inf")
    assert request["config"]["note"] == 'NaN, "Infinity' and request["config"]["none"] != request["config"]["none"]
    answer = json.loads(estimate_json(json.dumps(request)))
    until(page, "!('busy' in document.documentElement.dataset)")
    if "error" in answer:
        assert page.inner_text(".error") == answer["error"] and "JSON" not in answer["error"]
    else:
        shows(page, peak(request))
    opens(page, '{"a": Infinit}')
    until(page, "document.querySelector('.error').textContent.includes('not JSON')")


def test_old_numbers_are_not_taken_along(page: Any) -> None:
    assert can_be_taken(page) == [True] * 4
    page.fill("form.form [name=gpu]", "H1000")
    page.press("form.form [name=gpu]", "Tab")
    until(page, "document.querySelector('.error').textContent.includes('unknown GPU')")
    assert can_be_taken(page) == [False] * 4
    page.fill("form.form [name=gpu]", "H200 SXM")
    page.press("form.form [name=gpu]", "Tab")
    until(page, "document.querySelector('.error').textContent === ''")
    assert can_be_taken(page) == [True] * 4
    opens(page, "{")  # nothing of the state has changed
    until(page, "document.querySelector('.error').textContent.includes('not JSON')")
    assert can_be_taken(page) == [True] * 4 and page.locator("pm-calculator.stale").count() == 0


def test_the_baked_page_takes_no_old_numbers(opened: Any, built: Path) -> None:
    page = opened((built / "page.html").as_uri() + START, offline=True)
    assert can_be_taken(page) == [True] * 4
    page.fill("form.form [name=sequence]", "1234")
    until(page, "document.querySelector('.error').textContent.includes('peakmem serve')")
    assert can_be_taken(page) == [False] * 4


def test_two_files_of_one_name_differ(page: Any) -> None:
    opens(page, json.dumps(LLAMA))
    until(page, "location.hash.includes('config=')")
    page.get_by_role("button", name="Pin this").click()
    assert "Change a setting" in page.inner_text(".pinned")
    opens(page, json.dumps({**LLAMA, "num_hidden_layers": 6}))
    until(page, "document.querySelector('.pinned').textContent.includes('config.json → another file of this name')")


def test_what_was_copied_goes_when_it_is_old(page: Any) -> None:
    page.get_by_role("button", name="command line").click()
    assert page.is_visible(".copied")
    page.fill("form.form [name=batch]", "5")
    until(page, "document.querySelector('.copied').hidden")
    page.get_by_role("button", name="command line").click()
    assert "--batch 5" in page.inner_text(".copied")


@pytest.mark.parametrize("more,told", [
    ("&sequnce=1", "unknown here: sequnce"), ("&config={", "config in the link is not JSON"),
    ("&batch=2&batch=3", "says twice: batch; the last is taken"),
])
def test_a_wrong_link_is_said_whenever_it_is_followed(opened: Any, address: str, page: Any, more: str,
                                                       told: str) -> None:
    follow(page, more)
    until(page, f"document.getElementById('status').textContent.includes({json.dumps(told)})")
    follow(page, "&batch=2")
    until(page, "document.getElementById('status').textContent === ''")
    assert told in opened(address + START + more).inner_text("#status")


def test_a_word_for_a_number_is_refused_without_noise(page: Any) -> None:
    follow(page, "&batch=abc")  # a warning of the browser would fail this test
    until(page, "document.querySelector('.error').textContent.includes('abc')")
    assert page.input_value("form.form [name=batch]") == ""


def test_an_emptied_field_is_its_default(page: Any) -> None:
    page.fill("form.form [name=batch]", "4")
    shows(page, peak({"model": "llama-3.1-8b", "settings": {"batch": 4}}))
    page.fill("form.form [name=batch]", "")
    shows(page, peak({"model": "llama-3.1-8b"}))
    page.press("form.form [name=batch]", "Tab")
    assert page.input_value("form.form [name=batch]") == "1"


def test_a_measured_number_is_not_negative(opened: Any, address: str) -> None:
    page = opened(address + "#v=1&model=llama-3.1-8b&gpu=H200+SXM+141GB")
    page.fill("[name=measured-allocated]", "-5")
    until(page, "document.querySelector('.measured').textContent.includes('above 0')")
    assert "%" not in page.inner_text(".verdict")
    page.fill("[name=measured-allocated]", "121")
    until(page, "document.querySelector('.verdict').textContent.includes('above the count')")
