"""FSDP2 on one fake rank of many."""

from __future__ import annotations

from math import ceil
from typing import Any

import pytest
import torch
from steps import GPT2, LLAMA, MIXTRAL, setting

from peakmem import Setup, estimate
from peakmem.errors import PeakmemError
from peakmem.ledger import Ledger
from peakmem.ledger_json import from_json
from peakmem.readers.hf_config import from_config
from peakmem.trace.models import as_json
from peakmem.trace.process import Worker
from peakmem.trace.settings import setting_of
from peakmem.views.matching import unmatched

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


DEEPSEEK = {
    "model_type": "deepseek_v2", "hidden_size": 96, "intermediate_size": 200, "moe_intermediate_size": 40,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "n_shared_experts": 2,
    "n_routed_experts": 8, "num_experts_per_tok": 2, "first_k_dense_replace": 0, "kv_lora_rank": 24,
    "q_lora_rank": None, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 24, "n_group": 4, "topk_group": 2,
    "topk_method": "group_limited_greedy", "vocab_size": 523,
}
SHARDED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "llama": (LLAMA | {"num_hidden_layers": 3}, {}),
    "llama, checkpoints and micro-batches": (LLAMA, {"checkpoint": "full", "accumulation": 2}),
    "gpt2, reduced in 16 bits": (GPT2, {"accumulation": 2, "reduce_dtype": "bf16"}),
    "gpt2, whole layers and clipping": (GPT2, {"reshard": "none", "clip": True}),
    "mixtral": (MIXTRAL, {}),
    "llama under autocast": (LLAMA | {"num_hidden_layers": 3}, {"precision": "amp-bf16", "checkpoint": "full"}),
    "llama, fp32 adapters over 16 bits": (LLAMA | {"num_hidden_layers": 3}, {"lora_rank": 4}),
    "llama, adapters under autocast": (LLAMA | {"num_hidden_layers": 3}, {"lora_rank": 4, "precision": "amp-bf16"}),
    "gpt2, a frozen layer": (GPT2, {"frozen_layers": 1, "freeze": "mlp"}),
    # Its rotary table is complex: casting a layer's floating inputs leaves it alone.
    "deepseek v2, a complex table": (DEEPSEEK, {"checkpoint": "full"}),
}


@pytest.mark.parametrize("gpus", [8, 1024])
@pytest.mark.parametrize("name", SHARDED)
def test_a_ranks_ledger_equals_the_estimates(worker: Worker, name: str, gpus: int) -> None:
    config, settings = SHARDED[name]
    setup = Setup.of(**{"precision": "mixed"} | settings, shard="fsdp2", gpus=gpus, sequence=40, batch=2)
    model = from_config(config)
    ours = from_json(worker.call(as_json, setting_of(config, model, setup), {}, ()))
    theirs = estimate(model, setup)
    assert ours.phases == theirs.phases
    assert ours.chart == theirs.chart
    assert dict(ours.peak.by_kind) == dict(theirs.peak.by_kind) and ours.peak.by_kind["communication"] > 0
    assert largest(ours) == largest(theirs)
    assert unmatched(theirs, ours) == ({}, {})


def test_a_unit_gathered_for_a_backward_that_it_does_not_have_is_let_go(worker: Worker) -> None:
    setup = Setup.of(precision="mixed", shard="fsdp2", gpus=8, sequence=40, frozen_layers=1, freeze="wte,wpe")
    config = GPT2 | {"n_layer": 3}
    ours = from_json(worker.call(as_json, setting_of(config, model := from_config(config), setup), {}, ()))
    assert ours.phases == estimate(model, setup).phases


def largest(ledger: Ledger) -> dict[str, int]:
    """The most of each kind."""
    return {kind: most.largest for kind, most in ledger.kinds.items()}


def streams(gpus: int) -> set[tuple[str, bool]]:
    """What lies on which stream: (kind, whether it is the first stream)."""
    from peakmem.trace import record, sharded
    from peakmem.trace.classify import classify

    of = {"gpus": gpus, "compute": "bf16", "reduce": "fp32", "reshard_after_forward": True, "sync": "every"}
    made = setting(LLAMA, dtype="fp32", **of)
    tracer, _, _ = sharded.traced(made, record.model_of(made))
    classify(tracer)
    return {(block.kind, block.stream == 0) for block, _ in tracer.events}


def test_gathers_and_reduced_gradients_lie_on_streams_of_their_own(worker: Worker) -> None:
    found = worker.call(streams, 8)
    assert {("communication", False), ("communication", True), ("gradient", False), ("saved", True)} <= found
    assert not {("saved", False), ("parameter", False), ("gradient", True)} & found


def two_dtypes(trained: bool) -> int:
    """Check layers with a norm in fp32 beside a matrix in bf16."""
    from peakmem.trace import fake_gpu, ranks, sharded

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            linear, norm = torch.nn.Linear(16, 24, dtype=torch.bfloat16), torch.nn.LayerNorm(24)
            self.layers = torch.nn.ModuleList([torch.nn.Sequential(linear, norm.requires_grad_(trained))])

    fake_gpu.set_up(fallback=False)
    with ranks.ranks(4) as mesh, fake_gpu.fake_mode(), torch.device("cuda"):
        model = Model()
        sharded.shard(model, model.layers, mesh, torch.bfloat16, None, True)
    return len(list(model.parameters()))


def test_units_of_two_dtypes_are_refused_before_they_run(worker: Worker) -> None:
    with pytest.raises(PeakmemError, match="layers.0 has bfloat16 and float32; give all") as caught:
        worker.call(two_dtypes, True)
    assert "\n" not in str(caught.value)
    assert worker.call(two_dtypes, False) == 4
