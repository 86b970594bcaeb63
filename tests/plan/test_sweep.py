"""A sweep of a million settings is worth nothing unless each of its numbers is the estimate's own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

import peakmem
from peakmem.errors import Impossible
from peakmem.plan.sweep import sweep

RUNS: list[tuple[str, dict[str, Any]]] = [
    ("gpt2", {"precision": "amp-bf16", "attention": "eager"}),
    ("llama-3.2-1b", {"checkpoint": "full", "lora_rank": 8}),
    ("mixtral-8x7b", {"accumulation": 2}),
    ("gemma-2-2b", {"run": "inference"}),
    ("mistral-7b", {"shard": "fsdp2", "gpus": 8}),
]


@pytest.mark.parametrize(("model", "setup"), RUNS, ids=[model for model, _ in RUNS])
@settings(max_examples=4, deadline=None)
@given(points=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 1024)), min_size=2, max_size=5))
def test_each_peak_is_the_estimate_of_its_point(model: str, setup: dict[str, Any],
                                                points: list[tuple[int, int]]) -> None:
    batches, lengths = zip(*points)
    peaks = sweep(model, {"batch": batches, "sequence": lengths}, **setup)
    alone = [peakmem.estimate(model, batch=b, sequence=s, **setup).peak.bytes for b, s in points]
    assert peaks.tolist() == alone


@settings(max_examples=5, deadline=None)
@given(points=st.lists(st.tuples(st.integers(1, 40), st.sampled_from((96, 768, 1024, 1032))), min_size=2, max_size=4))
def test_layers_and_width_are_axes(points: list[tuple[int, int]]) -> None:
    layers, widths = zip(*points)
    peaks = sweep("gpt2", {"layers": layers, "hidden": widths, "heads": [8] * len(points)}, sequence=64)
    alone = [peakmem.estimate("gpt2", layers=n, hidden=h, heads=8, sequence=64).peak.bytes for n, h in points]
    assert peaks.tolist() == alone


def test_what_doubles_cannot_count_to_the_byte_is_refused() -> None:
    with pytest.raises(Impossible, match=r"holds 931,176 PiB; a sweep counts to the byte below 8 PiB"):
        sweep("llama-3.1-8b", {"batch": [1, 10**9], "sequence": [8, 131072]})


@pytest.mark.parametrize(("axes", "words"), [
    ({"batch": [1, 2], "sequence": [8]}, "axes of a sweep have one length"),
    ({"batch": [0, 2]}, "axis batch goes from 0 to 2"),
    ({"optimizer": [1]}, "'optimizer' is no axis of a sweep"),
])
def test_mistakes_are_told(axes: dict[str, Any], words: str) -> None:
    with pytest.raises(Impossible, match=words):
        sweep("gpt2", axes)
