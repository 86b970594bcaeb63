"""300 requests, right and wrong: the same bytes from the function, the server and the browser's own Python."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from peakmem.setup import FIELDS
from peakmem.tables.gpus import gpus
from peakmem.tables.models import presets
from peakmem.tables.optimizers import OPTIMIZERS
from peakmem.web.answer import ASKS, estimate_json
from tests.web.conftest import PYODIDE

ROOT = Path(__file__).parent.parent.parent
CONFIG = json.loads((ROOT / "examples/llama-3.1-8b/config.json").read_text())
WRONG = [
    "", " ", "{", "{\0}", "[]", "null", "1e999", '"text"', '{"ask":"nothing"}', '{"model":"gtp2"}',
    '{"settings":{"batch":-1}}', '{"settings":{"batch":NaN}}', '{"settings":{"batch":1e400}}',
    '{"settings":{"batch":1.5}}', '{"settings":{"gpu":"H1000"}}', '{"settings":{"gpu":"24"}}',
    '{"sizes":{"layers":1000000000}}', '{"config":{}}', '{"config":{"model_type":"nothing"}}',
    '{"config":{"model_type":"llama"}}', '{"ask":"fit"}', '{"ask":"compare","a":{}}', '{"unknown":1}',
    '{"lines":5001}', "[" * 5000, '{"model":"' + "\u00e9\u20ac\U0001f600" * 50 + '"}', '{"a":1,"a":2}', "\ufeff{}",
    "\x00", '{"model":"\\ud800"}', '{"model":"gpt2","settings":{"sequence":4096}}',
    '{"ask":"sweep","axes":{"batch":{"from":1,"to":1000000000}}}', '{"settings":{"shard":"zero3"}}',
    '{"settings":{"implementation":"fused"},"model":"gpt2"}', '{"settings":[]}',
    '{"ask":"diagnose"}', '{"ask":"diagnose","message":"none"}',
    '{"settings":{"batch":' + "9" * 500 + "}}", "{'model':'gpt2'}",
]

MESSAGE = ("CUDA out of memory. Tried to allocate {} (GPU 0; 23.69 GiB total capacity; 16.12 GiB already allocated; "
           "374.94 MiB free; 19.00 GiB reserved in total by PyTorch)")
FAILED = [("2.81 GiB", {}), ("20.00 MiB", {"model": "gpt2"}),
          ("148.00 MiB", {"model": "gpt2", "settings": {"sequence": 771, "precision": "amp-bf16"}})]


def requests() -> list[str]:
    """300 of them, always the same."""
    dice = random.Random(7)
    smallest: dict[str, str] = {}  # of each family: the largest models take seconds in each of three places
    for row in sorted(presets().values(), key=lambda row: row.parameters):
        smallest.setdefault(row.family, row.name)
    found = [json.dumps({"ask": ask}) for ask in ("tables", "cells", "growth", "three-layers")]
    found += [json.dumps({"ask": "diagnose", "message": MESSAGE.format(tried), **run}) for tried, run in FAILED]
    while len(found) < 300 - len(WRONG):
        settings: dict[str, Any] = {"sequence": dice.choice([128, 512, 1000, 1024])}
        for name in dice.sample(list(FIELDS), dice.randint(0, 4)):
            row = FIELDS[name]
            settings[name] = (dice.choice(row["choices"]) if row["choices"] else dice.choice(list(OPTIMIZERS))
                              if name == "optimizer" else dice.choice([row.name for row in gpus()]) if name == "gpu"
                              else dice.choice([True, False]) if row["type"] is bool else dice.choice(["1", 2, 8, 64])
                              if row["type"] is int else row["default"])
        model = dice.choice(list(smallest.values()))
        request: dict[str, Any] = {"model": model, "settings": settings}
        if dice.random() < 0.1:
            request |= {"model": "mine", "config": CONFIG}
        elif dice.random() < 0.2:
            request |= {"model": "custom", "sizes": {"layers": dice.randint(1, 90), "hidden": 64 * dice.randint(1, 80)}}
        asks = {"estimate": 60, "chart": 10, "room": 10, "fit": 2, "levers": 3, "beside": 5, "refused": 5, "compare": 5,
                "sweep": 5}
        ask = dice.choices(list(asks), list(asks.values()))[0]
        if ask == "compare":
            request = {"a": request, "b": {"model": "gpt2", "settings": {"sequence": 128}}}
        elif ask == "sweep":
            request["axes"] = {"batch": {"from": 1, "to": 3}}
        elif ask == "estimate":
            request |= {"lines": dice.choice([0, 12, 100]), "timeline": dice.random() < 0.2,
                        "allocator": dice.random() < 0.3}
        if ask == "fit":
            settings.pop("batch", None)
            settings["gpu"] = "H100 SXM 80GB"
        found.append(json.dumps({"ask": ask, **request}, ensure_ascii=dice.random() < 0.5))
    return found + WRONG


@pytest.fixture(scope="module")
def expected() -> list[tuple[str, str]]:
    return [(text, estimate_json(text)) for text in requests()]


def test_they_are_a_fair_mixture(expected: list[tuple[str, str]]) -> None:
    wrong = sum(answer.startswith('{"error"') for _, answer in expected)
    asked = {json.loads(text)["ask"] for text, _ in expected[:-len(WRONG)]}
    assert len(expected) == 300 and asked == set(ASKS) and 50 < wrong < 200
    assert not [answer for _, answer in expected if "peakmem failed" in answer]


def test_the_server(expected: list[tuple[str, str]]) -> None:
    pytest.importorskip("starlette", reason="needs starlette and uvicorn: pip install -e '.[serve]'")
    from tests.web.server import ask, running

    with running() as port:
        for text, answer in expected:
            found = ask(port, text)
            if text:
                assert found.body.decode() == answer, text[:300]
                assert found.status == (400 if answer.startswith('{"error"') else 200), text[:300]
            else:
                assert found.status == 400


def test_the_browsers_python(expected: list[tuple[str, str]], browser: Any, built: Path) -> None:
    """In the worker of the page, as `peakmem page --out FOLDER/ --pyodide …` writes it."""
    from tests.web.serving import folder

    if not PYODIDE.exists():
        pytest.skip("Pyodide is not there: npm ci")
    with folder(built / "live") as address:
        page = browser.new_page()
        page.goto(address)
        page.wait_for_selector("html[data-engine=live]", timeout=120_000)
        answers = page.evaluate("""async (texts) => {
            const worker = new Worker("worker.js", { type: "module" });
            await new Promise((resolve, reject) => {
                worker.onmessage = ({ data }) => data.ready ? resolve() : reject(data.failed);
                worker.onerror = (event) => reject(event.message); });
            const answers = [];
            for (const text of texts) answers.push(await new Promise((resolve) => {
                worker.onmessage = ({ data }) => resolve(data.text); worker.postMessage({ id: 1, text }); }));
            return answers;
        }""", [text for text, _ in expected])
        page.close()
    for (text, answer), found in zip(expected, answers, strict=True):
        assert found == answer, text[:300]
