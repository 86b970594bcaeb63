"""ZeRO's three stages: the paper's table from the engine's own lines, and what DeepSpeed keeps beside it."""

from __future__ import annotations

from typing import Any

import pytest

from peakmem.errors import Impossible
from peakmem.estimate import estimate
from peakmem.estimate.interpret import interpret
from peakmem.estimate.replay import compiled, replay
from peakmem.estimate.settings import structure_of
from peakmem.ledger import Ledger
from peakmem.model import Model
from peakmem.readers.hf_config import from_config
from peakmem.setup import Setup
from tests.estimate.test_books import FAMILIES, check, model_of

RESIDENT = ("weights", "gradients", "optimizer_state")


def gpt() -> Model:
    """A GPT-2 of 7.46 billion parameters."""
    return from_config({"model_type": "gpt2", "n_embd": 4096, "n_layer": 36, "n_head": 32, "n_positions": 1024,
                        "vocab_size": 50257})


def resident(ledger: Ledger) -> int:
    """Weights and states that are there all the time, and the most that gradients reach."""
    always = sum(line.bytes * line.count for line in ledger.lines
                 if line.kind in ("weights", "optimizer_state") and line.born == "start")
    return always + ledger.kinds["gradients"].largest


@pytest.mark.parametrize(("shard", "gigabytes"), [("none", "120"), ("zero1", "31.4"), ("zero2", "16.6"),
                                                  ("zero3", "1.88")])
def test_the_papers_table(shard: str, gigabytes: str) -> None:
    """Rajbhandari et al. 2020, figure 1: 7.5 billion parameters on 64 GPUs, mixed precision, K = 12."""
    ledger = estimate(gpt(), sequence=1024, precision="mixed", shard=shard, gpus=64 if shard != "none" else 1)
    per_parameter = resident(ledger) / ledger.parameters.total
    assert f"{per_parameter * 7.5:.3g}" == gigabytes


LLAMA = {"model_type": "llama", "hidden_size": 480, "intermediate_size": 760, "num_hidden_layers": 3,
         "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 997, "rms_norm_eps": 1e-5}
SCALARS = 8  # DeepSpeed divides and scales the loss: two numbers
MEASURED = {
    # unrounded, above what was there before: highest of the forward, of the backward, of the step
    "zero1": (5581944, 12991048 - SCALARS, 10512728 - SCALARS),
    "zero2": (5581944, None, 10512728 - SCALARS),  # rank 0 owns what comes last in backward, others hold more
    "zero3": (11214400, None, None),  # run with stage3_max_reuse_distance 0, which gathers the head twice
}


@pytest.mark.parametrize("shard", MEASURED)
def test_deepspeed_itself(shard: str) -> None:
    """deepspeed 0.19.8 on the CPU, rank 0 of a fake process group of 4, every operation watched; third step."""
    setup = Setup.of(shard=shard, gpus=4, reduce_bucket=2_000_000, attention="eager", batch=2, sequence=40)
    structure, numbers = structure_of(from_config(LLAMA), setup)
    levels = replay(compiled(interpret(structure)), numbers, rounding=1)
    found = tuple(levels[phase].peak - levels[phase].start for phase in ("forward", "backward", "optimizer"))
    for ours, theirs in zip(found, MEASURED[shard], strict=True):
        assert theirs is None or ours == theirs


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("settings", [
    {"shard": "zero1"}, {"shard": "zero2"}, {"shard": "zero3"}, {"shard": "zero1", "accumulation": 3},
    {"shard": "zero2", "accumulation": 3}, {"shard": "zero3", "accumulation": 3, "checkpoint": "full"},
    {"shard": "zero1", "lora_rank": 4}, {"shard": "zero2", "lora_rank": 4}, {"shard": "zero3", "lora_rank": 4},
    {"shard": "zero3", "lora_rank": 4, "checkpoint": "full"}, {"shard": "zero1", "precision": "megatron"},
    {"shard": "zero3", "precision": "amp-bf16"}, {"shard": "zero2", "precision": "fp32"},
    {"shard": "zero2", "gpus": 1}, {"shard": "zero3", "gpus": 1}, {"shard": "zero3", "optimizer": "adamw-8bit"},
], ids=str)
def test_books_balance_and_folded_layers_say_what_unfolded_ones_do(family: str, settings: dict[str, Any]) -> None:
    check(model_of(family), {"gpus": 4} | settings)


@pytest.mark.parametrize("model", ["llama-3.1-8b", "gpt2", "mixtral-8x7b", "bert-large"])
def test_each_stage_lowers_what_it_divides(model: str) -> None:
    """In models with matrices above stage 3's persistence threshold."""
    way: dict[str, Any] = {"sequence": 16, "batch": 2, "gpus": 8, "reduce_bucket": 1000}
    whole, one, two, three = (estimate(model, **way, shard=shard) for shard in ("none", "zero1", "zero2", "zero3"))
    assert one.kinds["optimizer_state"].largest < whole.kinds["optimizer_state"].largest
    assert two.kinds["gradients"].largest < one.kinds["gradients"].largest
    assert three.phases["step_start"] < two.phases["step_start"] == one.phases["step_start"]


def test_stage_1_keeps_gradients_whole_until_the_last_micro_batch() -> None:
    one, two = (estimate(model_of("llama"), sequence=16, shard=shard, gpus=4, accumulation=3)
                for shard in ("zero1", "zero2"))
    assert one.kinds["gradients"].at.startswith("backward")
    assert one.kinds["gradients"].largest > 2 * two.kinds["gradients"].largest


def test_the_bucket_has_deepspeeds_size_whatever_the_models() -> None:
    ledger = estimate(model_of("llama"), sequence=16, shard="zero2", gpus=4)
    bucket = next(line for line in ledger.lines if line.name == "reduce bucket")
    assert bucket.bytes == 1_000_000_000 // 512 * 512 + 512 * (1_000_000_000 % 512 > 0)
    assert "1,000,000,000 bytes (953.67 MiB)" in " ".join(ledger.notes)


def test_the_partition_is_padded_to_two_elements_for_each_gpu() -> None:
    """stage_1_and_2.py: nccl_start_alignment_factor."""
    model = model_of("llama")
    ledger = estimate(model, sequence=16, shard="zero1", gpus=7, precision="fp32")
    master = next(line for line in ledger.lines if line.name == "partition/master")
    elements = -(-ledger.parameters.total // 14) * 2
    assert master.bytes == -(-4 * elements // 512) * 512


def test_small_parameters_stay_whole_under_stage_3() -> None:
    """Those of at most 100,000 elements: stage3_param_persistence_threshold."""
    ledger = estimate("llama-3.1-8b", sequence=128, shard="zero3", gpus=8)
    whole = {line.name for line in ledger.lines if line.name.endswith(", persistent")}
    assert whole == {f"model.{name}.weight, persistent" for name in
                     ("layers.*.input_layernorm", "layers.*.post_attention_layernorm", "norm")}
    gathered = {line.name for line in ledger.lines if line.name.endswith(", gathered")}
    assert "model.layers.*.mlp.up_proj.weight, gathered" in gathered
    assert not any("norm" in name for name in gathered)


def test_megatrons_distributed_optimizer_holds_6_bytes_and_12_over_the_gpus() -> None:
    """Megatron-LM, docs/source/api-guide/dist_optimizer.md."""
    ledger = estimate(gpt(), sequence=1024, precision="megatron", shard="zero1", gpus=64)
    always = sum(line.bytes * line.count for line in ledger.lines if line.born == "start" and line.kind in RESIDENT)
    assert always / ledger.parameters.total == pytest.approx(6 + 12 / 64, abs=0.001)


@pytest.mark.parametrize("settings", [
    {"shard": "zero2", "precision": "megatron"}, {"shard": "zero1", "optimizer": "adafactor"},
    {"shard": "zero3", "optimizer": "muon"}, {"shard": "zero3", "run": "inference"},
], ids=str)
def test_what_it_refuses_is_one_line(settings: dict[str, Any]) -> None:
    with pytest.raises(Impossible) as caught:
        estimate(model_of("llama"), gpus=4, **settings)
    assert "\n" not in str(caught.value)


def test_what_is_not_counted_is_in_the_notes() -> None:
    notes = " ".join(estimate(model_of("llama"), shard="zero3", gpus=4).notes)
    assert "stage3_prefetch_bucket_size" in notes and "Not counted" in notes
