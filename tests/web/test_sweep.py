"""Many settings in one question: counted before the first of them is."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

import peakmem
from peakmem.web.answer import estimate_json


def sweep(axes: Any, **more: Any) -> Any:
    return json.loads(estimate_json(json.dumps({"ask": "sweep", "model": "gpt2", "axes": axes, **more})))


def test_each_point_is_its_estimate() -> None:
    axes = {"batch": {"from": 1, "to": 5, "step": 2}, "checkpoint": ["none", "full"]}
    found = sweep(axes, settings={"sequence": "512"})
    assert found["count"] == 6 and found["axes"] == [["batch", [1, 3, 5]], ["checkpoint", ["none", "full"]]]
    assert found["peaks"] == [peakmem.estimate("gpt2", sequence=512, batch=batch, checkpoint=kept).peak.bytes
                              for batch in (1, 3, 5) for kept in ("none", "full")]


def test_an_impossible_point_is_null_and_says_why() -> None:
    found = sweep({"sequence": [512, 4096]})
    assert found["peaks"][0] and found["peaks"][1] is None and "1,024" in found["refused"].replace("1024", "1,024")


@pytest.mark.parametrize("axes,words", [
    ({"batch": {"from": 1, "to": 10**9, "step": 1}}, "1,000,000,000 settings are more"),
    ({name: {"from": 1, "to": 32} for name in ("batch", "sequence", "accumulation", "gpus", "generate", "loss_chunks")},
     "1,073,741,824 settings are more"),
    ({"batch": {"from": 1, "to": 10**300}}, "more settings than one answer takes"),
    ({"batch": {"from": 1, "to": 9, "step": 0}}, "step 0"),
    ({"batch": {"from": 1, "to": 9, "step": -1}}, "step -1"),
    ({"batch": {"from": 9, "to": 1}}, "from 9 down to 1"),
    ({"batch": {"from": 1, "to": 9, "step": 0.1}}, "step 0.1 is not a whole number"),
    ({"batch": {"from": 1, "to": 9, "step": True}}, "step True"),
    ({"batch": {"from": 1, "to": "9"}}, "to '9'"),
    ({"batch": {"from": 1}}, "from, to and step"),
    ({"batch": [1, 2, "2"]}, "a value twice"),
    ({"batch": [0]}, "out of range"),
    ({"batch": [1.5]}, "not a whole number"),
    ({"batch": []}, "no values"),
    ({"dropout": {"from": 0, "to": 1}}, "give a list"),
    ({"btach": [1]}, "batch"),
    ({"checkpoint_save": [["mm"]]}, "unknown axis"),
    ({"checkpoint": ["some"]}, "some"),
    ({}, "axes"), ([], "axes"), (None, "axes"), ({"batch": 3}, "axis batch"),
])
def test_mistakes_are_found_before_any_work(axes: Any, words: str) -> None:
    start = time.monotonic()
    found = sweep(axes)
    assert list(found) == ["error", "fields", "parts"] and words in found["error"], found
    assert time.monotonic() - start < 1


def test_a_setting_is_no_axis_too() -> None:
    assert "leave one out" in sweep({"batch": [1]}, settings={"batch": 1})["error"]
