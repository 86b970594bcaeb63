"""Estimate and trace agree to the byte: a small grid, one point for every family. All of it: make agreement."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from peakmem.errors import PeakmemError
from peakmem.estimate import program_of
from peakmem.estimate.interpret import interpret
from peakmem.estimate.node import Node

if not (find_spec("torch") and find_spec("transformers")):
    pytest.skip("needs torch and transformers", allow_module_level=True)

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import agreement

from peakmem.trace.process import Worker


def possible(point: agreement.Point) -> bool:
    """Whether neither side refuses these settings."""
    try:
        point.setting()
        point.estimate()
    except PeakmemError:
        return False
    return True


def first_of_families() -> dict[str, agreement.Point]:
    """The first possible point of each family."""
    found: dict[str, agreement.Point] = {}
    for point in agreement.points(2):
        if point.config["model_type"] not in found and possible(point):
            found[point.config["model_type"]] = point
    return found


FIRST = first_of_families()
SHARDED = next(point for point in agreement.points(5) if point.settings["shard"] == "fsdp2" and possible(point))
GRID = [*FIRST.values(), SHARDED]


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """A process with torch, shared by all points."""
    with Worker() as worker:
        yield worker


@pytest.mark.parametrize("point", GRID, ids=lambda point: point.name)
def test_a_point_agrees(worker: Worker, point: agreement.Point) -> None:
    assert agreement.compared(worker, point) == (0, "")


def test_all_levers_are_in_the_grid() -> None:
    """The whole grid has every value of every axis, and every family."""
    seen = {(name, value) for point in agreement.points(5) for name, value in point.settings.items()}
    wanted = {(name, value) for name, values in agreement.AXES.items() for value in values}
    assert wanted <= seen
    assert set(FIRST) == set(agreement.FAMILIES)


def test_one_wrong_rule_is_seen(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """silu saves its input: an engine that forgets this is off in every phase that matters."""
    point = agreement.Point("planted", FIRST["llama"].config, {"precision": "bf16", "batch": 2, "sequence": 33})
    assert agreement.compared(worker, point) == (0, "")
    kept = Node.saves

    def forgets(node: Node, *arguments: object, **options: object) -> None:
        if node.op != "silu":
            kept(node, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Node, "saves", forgets)
    for cached in (interpret, program_of):
        cached.cache_clear()
    try:
        off, told = agreement.compared(worker, point)
    finally:
        for cached in (interpret, program_of):
            cached.cache_clear()
    assert off > 0
    assert "after_forward" in told
