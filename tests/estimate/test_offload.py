"""Offload: bytes on the host and on the disk are counted too, and are in no total of the device."""

from __future__ import annotations

import json
from typing import Any

import pytest

from peakmem.errors import Impossible
from peakmem.estimate import estimate
from peakmem.ledger import Ledger
from peakmem.ledger_json import as_json, from_json
from tests.estimate.test_books import FAMILIES, check, model_of

WAYS: list[dict[str, Any]] = [
    {"offload": "optimizer"}, {"offload": "optimizer+weights"}, {"offload": "disk-optimizer"},
    {"offload": "disk-optimizer+weights"}, {"offload": "optimizer", "shard": "zero1", "gpus": 4},
    {"offload": "optimizer", "shard": "zero2", "gpus": 4}, {"offload": "optimizer", "shard": "zero3", "gpus": 4},
    {"offload": "optimizer+weights", "shard": "zero3", "gpus": 4},
    {"offload": "disk-optimizer+weights", "shard": "zero3", "gpus": 4},
    {"offload": "optimizer+weights", "shard": "fsdp2", "gpus": 4},
]


def ledger_of(family: str = "llama", **settings: Any) -> Ledger:
    return estimate(model_of(family), **{"sequence": 16, "batch": 2, "reduce_bucket": 1000} | settings)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_books_balance_and_folded_layers_say_what_unfolded_ones_do(family: str, way: dict[str, Any]) -> None:
    for more in ({}, {"checkpoint": "full", "accumulation": 3}, {"lora_rank": 4}):
        check(model_of(family), way | more)


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_places_are_lines_and_not_in_the_devices_totals(way: dict[str, Any]) -> None:
    ledger = ledger_of(**way)
    for place in ("host", "disk"):
        lines = [line for line in ledger.lines if line.place == place]
        assert sum(line.bytes * line.count for line in lines) == getattr(ledger.totals, place)
        assert not any(line.at_peak for line in lines)
    assert sum(line.bytes_at_peak for line in ledger.lines if not line.scratch) == ledger.peak.bytes
    assert ledger.totals.host > 0
    assert (ledger.totals.disk > 0) == way["offload"].startswith("disk")
    assert ledger.kinds.get("optimizer_state") is None


@pytest.mark.parametrize("way", WAYS, ids=str)
def test_the_device_holds_less(way: dict[str, Any]) -> None:
    kept = {name: value for name, value in way.items() if name != "offload"}
    assert ledger_of(**way).phases["step_start"] < ledger_of(**kept).phases["step_start"]


def test_a_place_survives_json() -> None:
    ledger = ledger_of(**WAYS[3])
    written = json.loads(json.dumps(as_json(ledger)))
    again = from_json(written)
    assert again.totals == ledger.totals
    assert {line.place for line in again.lines} == {"device", "host", "disk"}
    older = dict(written, totals={name: written["totals"][name] for name in ("tensors", "allocated", "reserved",
                                                                             "device")},
                 lines=[{name: value for name, value in line.items() if name != "place"} for line in written["lines"]])
    assert from_json(older).totals.host == 0


def test_host_bytes_of_deepspeeds_stages() -> None:
    """16-bit weights, fp32 master, states and gradients, the weights' way back: 2 + 12 + 4 bytes a parameter."""
    ledger = estimate("llama-3.1-8b", sequence=128, offload="optimizer")
    host = {line.name: line.bytes for line in ledger.lines if line.place == "host"}
    count = ledger.parameters.total
    assert host["partition/master"] == host["partition/exp_avg"] == host["partition/exp_avg_sq"] == 4 * count
    assert host["partition/gradient in fp32"] == 4 * count
    assert host["partition/weights in bf16"] == 2 * count
    assert host["gradient staging buffer, host"] == 2 * 128256 * 4096  # the embedding is the largest


def test_the_device_keeps_one_buffer_of_the_largest_parameter() -> None:
    """stage_1_and_2.py: temp_grad_buffer_for_gpu_offload."""
    ledger = estimate("llama-3.1-8b", sequence=128, offload="optimizer")
    line = next(line for line in ledger.lines if line.name == "gradient staging buffer")
    assert (line.bytes, line.place) == (2 * 128256 * 4096, "device")


def test_disks_need_buffers_in_the_host() -> None:
    """offload_config.py: buffer_count 4 for the optimizer; 5 of 1e8 elements for parameters."""
    ledger = estimate("llama-3.1-8b", sequence=128, offload="disk-optimizer+weights", shard="zero3", gpus=8)
    host = {line.name: line.bytes for line in ledger.lines if line.place == "host"}
    part = -(-ledger.parameters.total // 8)
    assert host["swap buffers of the optimizer"] == pytest.approx(16 * min(part, 10**9), rel=1e-3)
    assert host["swap buffers of the weights"] == 5 * 10**8 * 2


def test_nothing_of_the_step_is_on_the_device() -> None:
    for way in WAYS:
        phases = ledger_of(**way).phases
        assert phases["optimizer_peak"] == phases["after_backward"]


@pytest.mark.parametrize("settings", [
    {"offload": "optimizer+weights", "shard": "zero2", "gpus": 4}, {"offload": "disk-optimizer", "shard": "zero1"},
    {"offload": "optimizer", "shard": "fsdp2", "gpus": 4}, {"offload": "optimizer", "gpus": 4},
    {"offload": "optimizer", "precision": "megatron"}, {"offload": "optimizer", "run": "inference"},
], ids=str)
def test_what_it_refuses_is_one_line(settings: dict[str, Any]) -> None:
    with pytest.raises(Impossible) as caught:
        ledger_of(**settings)
    assert "\n" not in str(caught.value)
