"""What a lever does is read from two ledgers: kinds that fall, kinds that rise, and why one is not offered."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from peakmem.quantity import gib
from peakmem.web.answer import estimate_json
from tests.web.conftest import until

MOVED = re.compile(r"([A-Za-z ]+?) ([\d,.]+ [KMGT]?i?B) → ([\d,.]+ [KMGT]?i?B)")


def asked(**request: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(estimate_json(json.dumps(request)))
    return found


def most(model: str, settings: dict[str, Any]) -> dict[str, int]:
    found = asked(model=model, settings=settings, lines=0, allocator=False)["ledger"]["kinds"]
    return {kind: row["largest"] for kind, row in found.items()}


@pytest.mark.parametrize("model,settings", [
    ("gpt2", {"sequence": 512, "batch": 4}), ("qwen2.5-0.5b", {"sequence": 1024, "attention": "eager"})])
def test_every_kind_that_changes_is_told(opened: Any, address: str, model: str, settings: dict[str, Any]) -> None:
    page = opened(address + f"#v=1&model={model}&" + "&".join(f"{name}={value}" for name, value in settings.items()))
    page.evaluate("document.getElementById('levers').scrollIntoView()")
    page.wait_for_selector("[data-lever=LoRA]")
    until(page, "!document.querySelector('pm-levers.stale')")
    before, seen = most(model, settings), set()
    for one in asked(ask="levers", model=model, settings=settings)["tried"]:
        after = most(model, {**settings, **one["settings"]})
        text = page.inner_text(f"li[data-name={json.dumps(one['lever'])}] p")
        falls, rises = (text.partition("Rises: ")[i] for i in (0, 2))
        told = {(kind.strip(", ").removeprefix("Falls: ").replace(" ", "_"), sign)
                for part, sign in ((falls, -1), (rises, 1)) for kind, _, _ in MOVED.findall(part)}
        want = {(kind, 1 if after.get(kind, 0) > before.get(kind, 0) else -1) for kind in {**before, **after}
                if gib(before.get(kind, 0)) != gib(after.get(kind, 0))}
        assert {(kind.replace("KV_", "kv_"), sign) for kind, sign in told} == want, (one["lever"], text)
        seen |= {(one["lever"], *pair) for pair in want}
    assert ("LoRA", "activations", 1) in seen and ("optimizer offload", "gradients", -1) in seen


@pytest.mark.parametrize("settings,lever,state,words", [
    ({"checkpoint": "full"}, "full checkpointing", "taken", "it saves"),
    ({"checkpoint": "full"}, "selective checkpointing", "taken", "Without it the peak is"),
    ({}, "flash attention", "taken", "it saves"),
    ({"optimizer": "sgd"}, "bf16 optimizer states", "nothing", "Worth nothing here: the peak stays at"),
    ({"optimizer": "sgd"}, "8-bit optimizer states", "apart", "nothing for it to change, with optimizer sgd"),
    ({}, "smaller batch", "apart", "the batch is one sequence"),
    ({"run": "inference"}, "LoRA", "apart", "in training only"),
    ({"precision": "bf16", "weights": "nf4", "lora_rank": 8}, "LoRA", "taken", "Without it this run is refused"),
])
def test_why_a_lever_is_not_offered(opened: Any, address: str, settings: dict[str, Any], lever: str, state: str,
                                    words: str) -> None:
    base = {"sequence": 512, **settings}
    page = opened(address + "#v=1&model=gpt2&" + "&".join(f"{name}={value}" for name, value in base.items()))
    page.evaluate("document.getElementById('levers').scrollIntoView()")
    line = f"li[data-name={json.dumps(lever)}] [data-state]"
    until(page, "document.querySelector('li.idle')")
    assert page.get_attribute(line, "data-state") == state and words in page.inner_text(line)
    assert "--" not in page.inner_text(line)
    if "saves" in words:
        row = next(one for one in asked(ask="levers", model="gpt2", settings=base)["levers"] if one["name"] == lever)
        now = asked(model="gpt2", settings=base, lines=0)["ledger"]["peak"]["bytes"]
        assert gib(row["bytes"] - now) in page.inner_text(line) and gib(row["bytes"]) in page.inner_text(line)


def bars(page: Any) -> list[str]:
    found: list[str] = page.eval_on_selector_all("pm-check .bar .name", "all => all.map((x) => x.textContent)")
    return found


@pytest.mark.parametrize("given,wrong,told", [
    ({"allocated": "20", "reserved": "10"}, "reserved", "cannot be below 20.00 GiB"),
    ({"allocated": "20", "reserved": "30", "device": "25"}, "device", "cannot be below 30.00 GiB"),
    ({"allocated": "20", "device": "3"}, "device", "holds what is allocated"),
    ({"allocated": "1000"}, "allocated", "H100 SXM 80GB has 79.19 GiB"), ({"reserved": "0"}, "reserved", "above 0"),
    ({"device": "-4"}, "device", "above 0"), ({"allocated": "1e12"}, "allocated", "not bytes"),
])
def test_what_cannot_have_been_measured_is_not_drawn(page: Any, given: dict[str, str], wrong: str, told: str) -> None:
    before = bars(page)
    for name, value in given.items():
        page.fill(f"[name=measured-{name}]", value)
    assert page.get_attribute(f"[name=measured-{wrong}]", "aria-invalid") == "true"
    assert told in page.inner_text(f"#said-{wrong}")
    assert page.locator("pm-check [aria-invalid=true]").count() == 1
    assert bars(page) == [*before, *(name for name in given if name != wrong)]
    page.fill(f"[name=measured-{wrong}]", "40")
    assert page.locator("pm-check [aria-invalid=true]").count() == 0 and bars(page)[-1] == list(given)[-1]
