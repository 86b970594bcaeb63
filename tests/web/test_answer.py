"""The one function: whatever comes in, JSON comes out, and a mistake is one line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings as hypothesis_settings, strategies as st

import peakmem
from peakmem.errors import PeakmemError
from peakmem.web.answer import ASKS, estimate_json
from peakmem.web.link import from_url
from peakmem.web.request import MOST


def ask(**request: Any) -> Any:
    return json.loads(estimate_json(json.dumps(request)))


def test_the_ledger_is_the_command_lines() -> None:
    found = ask(model="gpt2", settings={"sequence": 1024, "gpu": "H100"}, lines=5000)["ledger"]
    mine = peakmem.estimate("gpt2", sequence=1024, gpu="H100").as_json()
    assert sorted(found.pop("lines"), key=str) == sorted(mine.pop("lines"), key=str)
    assert found == json.loads(json.dumps(mine))


def test_without_the_allocator_the_tensors_are_the_same() -> None:
    quick = ask(model="gpt2", settings={"gpu": "H100"}, allocator=False)
    slow = ask(model="gpt2", settings={"gpu": "H100"})
    assert quick["ledger"]["peak"] == slow["ledger"]["peak"]
    assert quick["room"]["reserved"] is None and slow["room"]["reserved"] >= slow["room"]["tensors"]


@pytest.mark.parametrize("settings", [{}, {"gpu": "H100", "batch": 3}, {"run": "inference"}, {"accumulation": 2}])
def test_the_chart_alone_is_that_of_the_estimate(settings: dict[str, Any]) -> None:
    quick, whole = ask(ask="chart", model="gpt2", settings=settings), ask(model="gpt2", settings=settings,
                                                                          allocator=False)
    assert quick["room"] == whole["room"]
    for part in ("chart", "parameters"):
        assert quick["ledger"][part] == whole["ledger"][part]
    for name, value in quick["ledger"]["peak"].items():
        assert value == whole["ledger"]["peak"][name]
    assert quick["ledger"]["run"]["model"]["name"] == whole["ledger"]["run"]["model"]["name"]


def test_the_timeline_comes_to_the_peak() -> None:
    found = ask(model="llama-3.2-1b", timeline=True, lines=0)
    events = found["timeline"]["events"]
    total = [0] * events
    for changes in found["timeline"]["kinds"].values():
        ends = [at for at, _ in changes[1:]] + [events]
        for (at, amount), end in zip(changes, ends):
            for i in range(at, end):
                total[i] += amount
    assert max(total) == found["ledger"]["peak"]["bytes"]


def test_three_layers_end_where_they_began() -> None:
    found = ask(ask="three-layers")
    assert [one["moment"] for one in found["moments"]] == "start F1 F2 F3 B3 B2 B1 step clear".split()
    assert found["moments"][0]["end"] == found["moments"][-1]["end"]
    for row in found["tensors"]:
        assert row["cells"][0] == row["cells"][-1], row["name"]


def test_sixteen_and_eighteen_bytes() -> None:
    rows = {(row["precision"], row["optimizer"]): row for row in ask(ask="cells")["rows"]}
    assert rows["mixed", "adamw"]["total"] == "16" and rows["mixed", "adamw"]["seven"] == "104.3 GiB"
    assert rows["megatron", "adamw"]["total"] == "18"
    assert [part["bytes"] for part in rows["mixed", "adamw"]["parts"]] == ["2", "4", "4", "4", "2"]


def test_levers_start_from_the_peak() -> None:
    found = ask(ask="levers", model="llama-3.2-1b", settings={"batch": 4})
    assert found["before"] == ask(model="llama-3.2-1b", settings={"batch": 4})["ledger"]["peak"]["bytes"]
    assert sum(found["by_kind"].values()) == found["before"]
    for one in found["tried"]:
        if not one["refused"]:
            after = ask(model="llama-3.2-1b", settings={"batch": 4} | one["settings"])["ledger"]["peak"]["bytes"]
            assert after == one["after"] < one["before"], one["lever"]


def test_a_lever_shows_its_own_kinds() -> None:
    """Four levers end at one peak, that of the optimizer; what each does to the activations is its own."""
    found = ask(ask="levers", model="llama-3.1-8b", settings={"gpu": "H100 SXM 80GB"})
    tried = {one["lever"]: one for one in found["tried"]}
    same = [tried[name] for name in ("chunked loss", "selective checkpointing", "full checkpointing")]
    assert len({one["after"] for one in same}) == 1
    assert len({one["largest"]["activations"] for one in same}) == 3
    for one in found["tried"]:
        settings = {"gpu": "H100 SXM 80GB", **one["settings"]}
        kinds = ask(model="llama-3.1-8b", settings=settings, allocator=False)["ledger"]["kinds"]
        assert one["largest"] == {kind: row["largest"] for kind, row in kinds.items()}, one["lever"]


@pytest.mark.parametrize("text", [
    "", "{", "[]", "null", '"x"', "1e999", '{"ask":1}', '{"ask":"nothing"}', '{"model":3}',
    '{"model":"../../etc/passwd"}',
    '{"model":"/dev/stdin"}', '{"settings":[]}', '{"settings":{"batch":-1}}', '{"settings":{"gpu":"H1000"}}',
    '{"settings":{"batch":NaN}}', '{"settings":{"batch":1e400}}', '{"sizes":{"layers":1000000000}}',
    '{"config":[]}', '{"config":{"model_type":"x"}}', '{"ask":"fit"}', '{"ask":"compare"}',
    '{"ask":"compare","a":{},"b":[]}',
    '{"ask":"tables","model":"gpt2"}', '{"unknown":1}', '{"lines":-1}', '{"lines":10000000}', "[" * 100_000,
    '{"model":"' + "x" * 5000 + '"}', '{"model":"\ud800"}', "x" * (MOST + 1), '{"settings":{"loss_chunks":4097}}',
    '{"ask":"levers","settings":{"gpu":"A100"}}', '{"model":"gpt2","settings":{"implementation":"fused"}}',
])
def test_a_mistake_is_one_line(text: str) -> None:
    found = json.loads(estimate_json(text))
    assert list(found) == ["error", "fields", "parts"]
    assert "\n" not in found["error"] and "Traceback" not in found["error"] and "failed" not in found["error"], found


names = st.sampled_from(["model", "settings", "sizes", "config", "ask", "lines", "batch", "gpu", "run", "layers", "a"])
values = st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
                      | st.sampled_from([*ASKS, "gpt2", "custom", "H100", "inference"]),
                      lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
                      max_leaves=8)


@hypothesis_settings(max_examples=150, deadline=None)
@given(st.dictionaries(names, values, max_size=5))
@example({"sizes": {"model": None}})
def test_nothing_is_raised(request: dict[str, Any]) -> None:
    found = json.loads(estimate_json(json.dumps(request)))
    assert isinstance(found, dict) and not str(found.get("error", "")).startswith("peakmem failed")


def test_a_link_is_read_back() -> None:
    found = from_url("http://127.0.0.1:8000/#v=1&model=llama-3.1-8b&sequence=8192&layers=16&gpu=H100+SXM+80GB&batch=")
    assert found == {"model": "llama-3.1-8b", "settings": {"sequence": "8192", "gpu": "H100 SXM 80GB"},
                     "sizes": {"layers": "16"}}
    for wrong in ("http://example/", "#v=2&model=gpt2", "#v=1&modle=gpt2", "#v=1&batch=1&batch=2", "x" * 200_000):
        with pytest.raises(PeakmemError):
            from_url(wrong)


@pytest.mark.parametrize("text,told", [
    ('{"settings":{"batch":2,"batch":3}}', "has 'batch' twice"),
    ('{"model":"gpt2","model":"bert-base"}', "'model' twice"),
    ('{"settings":{"batch":"1_0"}}', "not a whole number"),
    ('{"settings":{"sequence":"١٢٨"}}', "not a whole number"),
    ('{"settings":{"dropout":"0.1_0"}}', "not a number"), ('{"sizes":{"layers":"1__000"}}', "not a whole number"),
    ('{"settings":{"dropout":"nan"}}', "not a number"),
])
def test_what_could_mean_two_things_is_refused(text: str, told: str) -> None:
    found = json.loads(estimate_json(text))["error"]
    assert told in found and "failed" not in found


def test_numbers_as_people_write_them() -> None:
    for text in ("1_024", "+1024", " 1024 "):
        assert ask(model="gpt2", settings={"sequence": text}) == ask(model="gpt2", settings={"sequence": 1024})
    for text in (".1", "0.1", "1e-1", "+.1e0"):
        assert ask(model="gpt2", settings={"dropout": text}) == ask(model="gpt2", settings={"dropout": 0.1})
