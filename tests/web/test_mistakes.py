"""Wrong input: told where it stands, in the page's own words; and what is of the last right answer says so."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

import peakmem
from peakmem.web.answer import estimate_json
from peakmem.web.told import NAMES, parts
from tests.web.conftest import START, until

SOURCE = Path(peakmem.__file__).parent
ELSEWHERE = ("cli", "trace", "measured", "views", "ledger_json.py", "web/guard.py", "web/listen.py",
             "web/pyodide.py")
"""Where messages name flags that are no settings; the page asks none of it."""
WORDS = re.compile(r"--([a-z][a-z-]*[a-z])")


def asked(**request: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(estimate_json(json.dumps(request)))
    return found


def test_every_flag_in_a_message_is_a_setting_or_a_size() -> None:
    """So that the page has a word for each."""
    wrong, seen = [], 0
    for path in SOURCE.rglob("*.py"):
        if str(path.relative_to(SOURCE)).startswith(ELSEWHERE):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            texts = ast.walk(node) if isinstance(node, ast.Raise) else ()
            for text in (one.value for one in texts if isinstance(one, ast.Constant)):
                see = str(text).startswith("peakmem ")  # where to look things up; the page leaves it out
                found = WORDS.findall(text) if isinstance(text, str) and not see else []
                seen += len(found)
                wrong += [(path.name, name) for name in found if name.replace("-", "_") not in NAMES]
    assert wrong == [] and seen > 80


def test_what_was_given_is_no_name_of_ours() -> None:
    for name in ("--gpu", "it's --gpu", "x" * 90 + " --gpu"):
        told = asked(settings={"optimizer": name})
        assert told["fields"] == ["optimizer"] and not [part for part in told["parts"] if isinstance(part, dict)], told
    assert parts("transformers' code: --loss 'a' --batch 1") == [
        "transformers' code: ", {"field": "loss"}, " 'a' ", {"field": "batch"}, " 1"]


@pytest.mark.parametrize("request_,fields", [
    ({"settings": {"gpu": "H1000"}}, ["gpu"]),
    ({"settings": {"offload": "optimizer", "shard": "ddp"}}, ["offload", "shard"]),
    ({"model": "gtp2"}, ["model"]), ({"model": "gpt2", "sizes": {"hidden": 100}}, ["hidden"]),
    ({"sizes": {"heads": 7}}, ["heads"]), ({"model": "t5-small", "sizes": {"layers": 3}}, ["layers"]),
    ({"settings": {"optimizer": "adm"}}, ["optimizer"]), ({"config": {"model_type": "x"}}, []),
    ({"model": "llama-3.1-8b", "sizes": {"heads": 7, "vocabulary": 50}}, ["heads", "vocabulary"]),
])
def test_a_mistake_names_what_is_to_be_mended(request_: dict[str, Any], fields: list[str]) -> None:
    assert asked(**request_)["fields"] == fields


@pytest.mark.parametrize("name,value", [("layers", "0"), ("hidden", "100"), ("heads", "7"), ("vocabulary", "-3")])
def test_a_wrong_size_says_so_itself(page: Any, name: str, value: str) -> None:
    page.locator("summary", has_text="Its size").click()
    page.fill(f"[name=size-{name}]", value)
    until(page, f"document.querySelector('[name=size-{name}]').getAttribute('aria-invalid') === 'true'")
    assert page.locator("[aria-invalid=true]").count() == 1
    line = page.locator("#" + page.get_attribute(f"[name=size-{name}]", "aria-describedby"))
    assert line.inner_text() == page.inner_text(".error") and "--" not in line.inner_text()
    page.fill(f"[name=size-{name}]", "")
    until(page, "!document.querySelector('[aria-invalid]')")
    assert line.inner_text() == "" == page.inner_text(".error")


def test_a_name_in_the_line_leads_to_its_control(opened: Any, address: str) -> None:
    page = opened(address + START)
    page.evaluate("(hash) => { location.hash = hash; }", START + "&offload=optimizer&shard=ddp&gpus=8")
    page.wait_for_selector(".error a")
    assert page.locator("[aria-invalid=true][name=offload], [aria-invalid=true][name=shard]").count() == 2
    page.locator(".error a", has_text="offload").first.click()
    assert page.evaluate("document.activeElement.name") == "offload"
    assert page.evaluate("document.activeElement.tabIndex") == 0


def test_no_number_at_all_is_a_mistake_too(page: Any) -> None:
    page.focus("form.form [name=batch]")
    page.fill("form.form [name=batch]", "")
    page.keyboard.type("-")
    until(page, "document.querySelector('.error').textContent.startsWith('batch per GPU: give a whole number')")
    assert page.get_attribute("form.form [name=batch]", "aria-invalid") == "true"
    page.keyboard.press("Tab")
    until(page, "document.querySelector('.error').textContent === ''")
    assert page.input_value("form.form [name=batch]") == "1"


OLD = [".headline", ".about", ".fits", ".stage", ".legend", ".detail", ".largest", "pm-ledger", "pm-levers",
       ".check-bars"]


def test_all_that_is_old_says_so(page: Any) -> None:
    for view, part in (("By moment", ".picture"), ("Over time", ".time"), ("Numbers", ".scroll.numbers")):
        page.get_by_role("button", name=view, exact=True).click()
        page.fill("form.form [name=sequence]", "0")
        until(page, "document.documentElement.hasAttribute('data-old')")
        assert page.locator(part).evaluate("x => getComputedStyle(x.closest('.stage')).opacity") == "0.65"
        assert page.eval_on_selector_all(", ".join(OLD), "all => all.map((x) => getComputedStyle(x).opacity)") == (
            ["0.65"] * len(OLD))
        notes = page.locator(".old").all()
        assert len(notes) == 5 and all(note.is_visible() for note in notes)
        page.fill("form.form [name=sequence]", "512")
        until(page, "!document.documentElement.hasAttribute('data-old')")
        assert not any(note.is_visible() for note in notes)


@pytest.mark.parametrize("hash_", ["#v=2&model=gpt2", "#v=&model=gpt2", "#v=1&v=2&model=gpt2", "#model=gpt2",
                                   "#v=01&model=gpt2"])
def test_a_link_of_another_version_is_refused(opened: Any, address: str, page: Any, hash_: str) -> None:
    fresh = opened(address + hash_)
    assert "The link is not taken" in fresh.inner_text("#status") and "v=1" in fresh.inner_text("#status")
    assert "llama-3.1-8b" in fresh.inner_text(".about") and fresh.inner_text(".error") == ""
    page.fill("form.form [name=batch]", "3")
    until(page, "location.hash.includes('batch=3')")
    page.evaluate("(hash) => { location.hash = hash; }", hash_)
    until(page, "document.getElementById('status').textContent.includes('not taken')")
    assert page.input_value("form.form [name=batch]") == "3" and "llama-3.1-8b" in page.inner_text(".about")
    assert "not taken" not in opened(address + "#levers").inner_text("#status")


def test_the_pages_own_route_says_mistakes_with_200() -> None:
    pytest.importorskip("starlette")
    from tests.web.server import ask, get, running

    with running() as port:
        for text in ('{"settings":{"gpu":"H1000"}}', "{", '{"model":"gpt2","lines":0,"allocator":false}'):
            there, here = ask(port, text, "/ask"), ask(port, text)
            assert there.status == 200 and there.body == here.body == estimate_json(text).encode()
        assert here.status == 200 and ask(port, "{").status == 400
        assert ask(port, "{}", "/ask", origin="http://evil.example").status == 403
        assert ask(port, b"", "/ask").status == 400 and get(port, "/ask").status == 405
