"""FSDP2 on one fake rank of many."""

from __future__ import annotations

from math import ceil
from typing import Any

import pytest
import torch
from steps import LLAMA, setting

from peakmem.trace.process import Worker

HIDDEN, INTERMEDIATE, VOCABULARY, LAYERS = 128, 344, 1000, 3


def sharded(gpus: int, **changes: Any) -> dict[str, Any]:
    """Trace one rank of a hand-written Llama."""
    from clean_llama import CleanLlama

    from peakmem.trace import record, sharded

    record.LOSSES["output"] = lambda output: output["loss"]
    with torch.device("meta"):
        model = CleanLlama(HIDDEN, INTERMEDIATE, LAYERS, 4, 2, VOCABULARY)
    usual = {"gpus": gpus, "compute": "bf16", "reduce": "fp32", "reshard_after_forward": True, "sync": "every"}
    return sharded.trace(setting(LLAMA, dtype="fp32", loss="output", **{**usual, **changes}), model)


def shard_bytes(gpus: int) -> int:
    """Return the fp32 bytes of one rank's shards, each rounded up to 512."""
    per_layer = [(HIDDEN, 1)] * 2 + [(HIDDEN, HIDDEN)] * 2 + [(64, HIDDEN)] * 2 + [(INTERMEDIATE, HIDDEN)] * 2
    shapes = [(VOCABULARY, HIDDEN)] * 2 + [(HIDDEN, 1)] + LAYERS * [*per_layer, (HIDDEN, INTERMEDIATE)]
    return sum(ceil(4 * ceil(rows / gpus) * columns / 512) * 512 for rows, columns in shapes)


@pytest.mark.parametrize("gpus", [8, 64, 1024])
def test_each_rank_holds_its_rows(worker: Worker, gpus: int) -> None:
    levels = worker.call(sharded, gpus)["bytes"]
    assert levels["params"] == shard_bytes(gpus)
    assert levels["optimizer_state"] == 2 * shard_bytes(gpus)
    assert levels["step_start"] == levels["step_end"]


def test_whole_layers_between_forward_and_backward_cost_their_bf16_copy(worker: Worker) -> None:
    freed = worker.call(sharded, 8)["bytes_unrounded"]
    kept = worker.call(sharded, 8, reshard_after_forward=False)["bytes_unrounded"]
    layer = 2 * HIDDEN + 2 * HIDDEN * HIDDEN + 2 * 64 * HIDDEN + 3 * HIDDEN * INTERMEDIATE
    assert kept["after_forward"] - freed["after_forward"] == 2 * LAYERS * layer


def test_without_synchronisation_gradients_stay_whole(worker: Worker) -> None:
    every = worker.call(sharded, 8, accumulation=2)["bytes"]["micro_batches"][0]
    last = worker.call(sharded, 8, accumulation=2, sync="last")["bytes"]["micro_batches"][0]
    assert last["after_backward"] > every["after_backward"] + 4 * 2 * VOCABULARY * HIDDEN
