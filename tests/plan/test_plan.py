"""Headroom, the largest batch, levers: on made-up engines whose answers are known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from peakmem.answers import Change, Headroom
from peakmem.errors import Impossible
from peakmem.ledger import Detail, Ledger, Parameters, Peak, Totals
from peakmem.plan.fit import ABOVE, largest
from peakmem.plan.headroom import headroom
from peakmem.plan.levers import LEVERS, flags, try_levers
from peakmem.setup import FIELDS, Setup
from peakmem.tables.gpus import GPU

GIB = 2**30


def ledger(tensors: int, allocated: int | None = None, reserved: int | None = None) -> Ledger:
    """A ledger that has totals and nothing else."""
    nothing = Detail(Peak(tensors, "", {}), {}, (), ())
    return Ledger("estimate", {"mirrors": {}}, (), Totals(tensors, allocated, reserved), {}, Parameters(0, 0, 0),
                  lambda: nothing)


def test_the_best_total_is_taken_and_named() -> None:
    assert headroom(ledger(1), "H100").total.startswith("in tensors")
    assert headroom(ledger(1, 2), "H100").total == "allocated, without fragmentation"
    assert (headroom(ledger(1, 2, 3), "H100").used, headroom(ledger(1, 2, 3), "H100").total) == (3, "reserved")


def test_fits_is_used_plus_context_against_what_pytorch_reports() -> None:
    at = headroom(ledger(0), "24GiB")
    edge = 24 * GIB - at.context[1]
    assert headroom(ledger(edge), "24GiB").fits
    assert headroom(ledger(edge + 1), "24GiB").spare == -1 and not headroom(ledger(edge + 1), "24GiB").fits


def test_as_sold_nothing_fits_inside_five_percent() -> None:
    gpu = GPU("new", memory_gb=100)
    room = headroom(ledger(0), gpu)
    assert room.sold and room.capacity == 100 * 10**9 and room.fits
    edge = 95 * 10**9 - room.context[1]
    assert headroom(ledger(edge), gpu).fits
    close = headroom(ledger(edge + 1), gpu)
    assert close.close and not close.fits and close.spare > 0
    over = headroom(ledger(100 * 10**9), gpu)
    assert not over.close and not over.fits


@given(st.integers(0, 10**9))
def test_the_largest_of_a_plain_limit(limit: int) -> None:
    asked: list[int] = []

    def fits(n: int) -> bool:
        asked.append(n)
        return n <= limit

    assert largest(fits) == min(limit, 10**9)
    assert len(asked) <= 2 * 30 + 2 * ABOVE + 5


@given(st.sets(st.integers(1, 200)))
def test_one_more_never_fits(sizes: set[int]) -> None:
    found = largest(lambda n: n in sizes, 10**6)
    assert (found in sizes and found + 1 not in sizes) or (found == 0 and not sizes & set(range(1, ABOVE + 1)))


def test_the_search_looks_again_above() -> None:
    holes = {7, 8, 20}
    assert largest(lambda n: n <= 25 and n not in holes) == 25
    assert largest(lambda n: 3 <= n <= 9) == 9
    assert largest(lambda n: True) == 10**9


def test_headroom_percent() -> None:
    room = Headroom("x", 50, "reserved", (0, 25), 100)
    assert room.percent == 75 and room.spare == 25


def test_every_lever_changes_settings_that_exist() -> None:
    worst = Setup.of(batch=6, attention="eager", optimizer="adamw", gpu="H100")
    for lever in LEVERS:
        changed = lever.change(worst)
        assert changed and set(changed) <= set(FIELDS)
        assert Setup.of(**changed)
        assert all(flag in lever.flag for flag in (flags({name: 0}).split()[0] for name in changed))
        assert lever.source and lever.shrinks and lever.costs


def test_a_lever_that_is_on_says_nothing() -> None:
    best = Setup.of(attention="flash", loss="fused", checkpoint="full", optimizer="adamw-8bit", lora_rank=8,
                    offload="optimizer+weights", state_dtype="bf16",
                    optimizer_implementation="fused", shard="fsdp2", gpus=8)
    assert {lever.name for lever in LEVERS if lever.change(best)} == {"sharding (FSDP)"}


def engine(limit: int, refuse: str = "") -> Any:
    """Each lever is worth something: checkpoint 10, chunked loss 5, fused loss 6, 8 bit 20, the rest nothing."""
    def measure(settings: Mapping[str, Any]) -> tuple[int, bool]:
        setup = Setup.of(**settings)
        if refuse and getattr(setup, refuse) != FIELDS[refuse]["default"]:
            raise Impossible(f"{refuse} cannot be combined")
        size = 100
        size -= {"none": 0, "selective": 4, "full": 10}[setup.checkpoint]
        size -= {"upcast": 0, "chunked": 5, "fused": 6, "sum": 0}[setup.loss]
        size -= 20 if setup.optimizer == "adamw-8bit" else 0
        return size, size <= limit

    return measure


def test_levers_by_themselves() -> None:
    tried, together = try_levers({}, engine(85))
    found = {change.flags: change for change in tried}
    assert found["--checkpoint full"].after == 90 and not found["--checkpoint full"].fits
    assert found["--optimizer adamw-8bit"].fits
    assert "--attention flash" not in found and "--state-dtype bf16" not in found
    assert together is None


def test_levers_together_are_no_more_than_needed() -> None:
    _, together = try_levers({}, engine(75))
    assert together and together.fits and together.after <= 75
    chosen = set(together.flags.split())
    assert "--optimizer" in chosen
    for part in ("--loss fused", "--checkpoint full", "--optimizer adamw-8bit"):
        left = together.flags.replace(part, "").split()
        settings = {left[i].strip("-").replace("-", "_"): left[i + 1] for i in range(0, len(left), 2)}
        if part in together.flags:
            assert not engine(75)(settings)[1]


def test_a_lever_that_another_peak_hides_is_tried_again() -> None:
    def measure(settings: Mapping[str, Any]) -> tuple[int, bool]:
        setup = Setup.of(**settings)
        size = max(90 if setup.checkpoint == "none" else 40, 100 if setup.optimizer == "adamw" else 50)
        return size, size <= 60

    found = try_levers({}, measure)[1]
    assert found == Change("together", "--optimizer adamw-8bit --checkpoint selective", 100, 50, True)


def test_nothing_suffices() -> None:
    tried, together = try_levers({}, engine(10))
    assert tried and together is None


def test_what_cannot_be_combined_is_said() -> None:
    tried, _ = try_levers({}, engine(75, refuse="checkpoint"))
    refused = [change for change in tried if change.refused]
    assert {change.flags for change in refused} == {"--checkpoint full", "--checkpoint selective"}
    assert "cannot be combined" in refused[0].refused


def test_a_run_that_fits_needs_nothing() -> None:
    assert try_levers({}, engine(100))[1] is None


def test_replace_keeps_headroom_immutable() -> None:
    room = Headroom("x", 50, "reserved", (0, 25), 100)
    with pytest.raises(AttributeError):
        room.used = 1  # type: ignore[misc]
    assert replace(room, used=80).fits is False
