"""What the form offers for each kind of model: no choice that is an error; and a mistake is told beside its field."""

from __future__ import annotations

import json
from typing import Any

import pytest

from peakmem.setup import FIELDS
from peakmem.web.answer import estimate_json
from tests.web.conftest import START, until

RUNS = [(model, run) for model in ("llava-1.5-7b", "t5-small", "whisper-small", "sd-1.5-unet", "dit-xl-2", "bert-base",
                                   "resnet-50", "mamba-130m") for run in ("training", "inference")]
SEQUENCE = {"llava-1.5-7b": 1024}


def ask(**request: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(estimate_json(json.dumps(request)))
    return found


@pytest.mark.parametrize("model,run", RUNS)
def test_what_is_refused_is_an_error(model: str, run: str) -> None:
    """Each by its own words, and no other choice of the field table."""
    base = {"run": run, "sequence": SEQUENCE.get(model, 448)}
    found = ask(ask="refused", model=model, settings=base)["refused"]
    for name in ("implementation", "shard", "loss", "offload", "kbit_prepare", "attention", "checkpoint"):
        for choice in FIELDS[name]["choices"]:
            answer = ask(ask="chart", model=model, settings={**base, name: choice})
            assert answer.get("error") == found.get(name, {}).get(choice), (name, choice)


@pytest.mark.parametrize("model,run", RUNS[1::3])
def test_the_form_offers_what_is_answered(opened: Any, address: str, model: str, run: str) -> None:
    settings = {"run": run, "sequence": SEQUENCE.get(model, 448), "gpu": "H100 SXM 80GB"}
    page = opened(f"{address}#v=1&model={model}&" + "&".join(f"{name}={value}" for name, value in settings.items()))
    refused = ask(ask="refused", model=model, settings=settings)["refused"]
    until(page, "document.querySelector('[data-field=implementation] .said').textContent.startsWith('Only')")
    offered = page.eval_on_selector_all("form.form [data-field]:not([hidden]) select:enabled", """all =>
        Object.fromEntries(all.map((one) => [one.name, [...one.options].filter((x) => !x.disabled)
        .map((x) => x.value)]))""")
    assert offered and not [(name, one) for name in offered for one in offered[name] if one in refused.get(name, {})]
    assert all(len(choices) > 1 for choices in offered.values())
    assert page.inner_text(".error") == ""


def test_a_mistake_is_told_beside_its_field(page: Any) -> None:
    page.evaluate("(hash) => { location.hash = hash; }", START + "&frozen_layers=99")
    field = "[data-field=frozen_layers]"
    until(page, f"document.querySelector('{field}').classList.contains('wrong')")
    assert page.is_visible(f"{field} .said") and "frozen layers" in page.inner_text(f"{field} .said")
    assert page.get_attribute("[name=frozen_layers]", "aria-invalid") == "true"
    page.fill("[name=frozen_layers]", "3")
    until(page, f"!document.querySelector('{field}').classList.contains('wrong')")
    page.fill("form.form [name=gpu]", "H1000")
    page.press("form.form [name=gpu]", "Tab")
    until(page, "document.querySelector('[data-field=gpu] .said').textContent.startsWith('unknown GPU')")
    assert page.locator(".wrong").count() == 1
