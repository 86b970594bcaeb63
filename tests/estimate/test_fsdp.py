"""FSDP2 against traces of torch's fully_shard on one rank of many: every phase, and in tiny models every event.

Traced with peakmem.trace.sharded on torch 2.13.0 (transformers 5.24.0, peft 0.21.2): 1 to 1024 ranks, shards that do
not divide evenly, policies, micro-batches with and without synchronisation, checkpointing, autocast, LoRA, offload.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import pytest

from peakmem.errors import Impossible
from peakmem.estimate import estimate
from peakmem.estimate.interpret import interpret
from peakmem.estimate.replay import Level, compiled, replay
from peakmem.estimate.settings import structure_of
from peakmem.setup import Setup
from peakmem.tables.models import find_model
from tests.estimate.test_books import FAMILIES, check, model_of
from tests.reference_steps import DATA, Record, differences, events_by_phase

GPUS = {"shard": "fsdp2", "gpus": 4}


@lru_cache(maxsize=1)
def traced() -> dict[str, Record]:
    return {record["id"]: record for record in json.loads((DATA / "traced_fsdp.json").read_text())}


NAMES = [line.split('"', 4)[3] for line in (DATA / "traced_fsdp.json").read_text().splitlines() if line.startswith("{")]


@pytest.mark.parametrize("name", NAMES)
def test_every_phase_equals_the_trace(name: str) -> None:
    assert differences(traced()[name]) == {}


@pytest.mark.parametrize("name", [name for name in NAMES if "8b" not in name])
def test_every_event_equals_the_trace(name: str) -> None:
    for phase, (ours, theirs) in events_by_phase(traced()[name]).items():
        assert ours == theirs, phase


def levels_of(settings: dict[str, Any], family: str = "llama", unfold: bool = False) -> dict[str, Level]:
    given = {"sequence": 16, "batch": 2} | GPUS | settings
    structure, numbers = structure_of(model_of(family), Setup.of(**given), unfold)
    return replay(compiled(interpret(structure)), numbers)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("settings", [
    {}, {"reshard": "none"}, {"reshard": "all"}, {"gpus": 1}, {"checkpoint": "full"}, {"lora_rank": 4},
    {"accumulation": 3}, {"accumulation": 3, "sync_each_batch": False}, {"precision": "amp-bf16"},
    {"offload": "optimizer+weights"}, {"freeze": "embed", "checkpoint": "full"}, {"set_to_none": False},
], ids=str)
def test_books_balance_and_folded_layers_say_what_unfolded_ones_do(family: str, settings: dict[str, Any]) -> None:
    check(model_of(family), GPUS | settings)


@pytest.mark.parametrize("family", FAMILIES)
def test_it_never_increases_what_it_divides(family: str) -> None:
    whole, divided = (estimate(model_of(family), sequence=16, batch=2, precision="fp32", **way) for way in ({}, GPUS))
    for kind in ("optimizer_state", "gradients"):
        assert divided.kinds[kind].largest <= whole.kinds[kind].largest
    assert divided.phases["step_start"] <= whole.phases["step_start"]


def test_more_gpus_hold_less_each() -> None:
    starts = [levels_of({"gpus": gpus})["start"].end for gpus in (1, 2, 4, 8)]
    assert starts == sorted(starts, reverse=True)


def test_a_shard_is_rounded_up_to_whole_rows() -> None:
    # 97 rows of the vocabulary on 4 GPUs: 25 rows of 40 numbers in fp32
    ledger = estimate(model_of("llama"), sequence=16, **GPUS)
    line = next(line for line in ledger.lines if line.name == "model.embed_tokens.weight")
    assert line.bytes == 4096  # 4000, rounded to 512
    assert line.formula == "4·⌈V/w⌉·h"


def test_gradients_without_synchronisation_stay_whole() -> None:
    synced = levels_of({"accumulation": 2})["backward.0"].end
    whole = levels_of({"accumulation": 2, "sync_each_batch": False})["backward.0"].end
    assert whole > synced


def test_buffers_are_communication_and_gathered_parameters_weights() -> None:
    ledger = estimate(model_of("llama"), sequence=16, **GPUS)
    kinds = {line.name: line.kind for line in ledger.lines}
    for name in ("gather input", "gather output", "scatter input"):
        assert kinds[f"model.layers.*/{name}"] == kinds[f"root/{name}"] == "communication"
    assert kinds["model.layers.*.mlp.up_proj.weight, gathered"] == "weights"
    assert kinds["model.layers.*/gradients of shards in fp32"] == "gradients"


def test_the_note_says_what_is_in_which_dtype() -> None:
    mixed, plain = (" ".join(estimate(model_of("llama"), precision=way, **GPUS).notes) for way in ("mixed", "bf16"))
    assert "shards, their gradients and states are fp32" in mixed
    assert "no mixed-precision policy" in plain


@pytest.mark.parametrize("settings", [{"precision": "megatron"}, {"offload": "optimizer"}, {"run": "inference"},
                                      {"offload": "disk-optimizer+weights"}], ids=str)
def test_what_it_refuses_is_one_line(settings: dict[str, Any]) -> None:
    with pytest.raises(Impossible) as caught:
        estimate(model_of("llama"), **GPUS | settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["deepseek-v2-lite", "kimi-k2"])
def test_units_of_two_dtypes_are_refused_as_torch_refuses_them(name: str) -> None:
    """The router stays in fp32; where all shards are fp32 it has no dtype of its own."""
    with pytest.raises(Impossible, match="gate.weight is fp32.*give --precision mixed or fp32") as caught:
        estimate(find_model(name), precision="bf16", sequence=8, **GPUS)
    assert "\n" not in str(caught.value)
    estimate(find_model(name), precision="mixed", sequence=8, **GPUS)
