"""Precision recipes: the bytes per parameter that people quote, recovered from the tensors of the engine."""

from __future__ import annotations

from typing import Any

import pytest

from peakmem.estimate import estimate
from peakmem.ledger import Ledger
from peakmem.readers.hf_config import from_config
from peakmem.tables.precisions import PRECISIONS

# No dimension is below 256, so every tensor is a multiple of 512 bytes and nothing is rounded.
LLAMA = {
    "model_type": "llama", "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 3,
    "num_attention_heads": 8, "num_key_value_heads": 8, "vocab_size": 1024, "tie_word_embeddings": False,
}


def run(**given: Any) -> Ledger:
    return estimate(from_config(LLAMA), sequence=8, batch=1, **given)


def per_parameter(ledger: Ledger) -> dict[str, float]:
    """Bytes per parameter of everything that is made once for each parameter."""
    sums = {"weight": 0, "gradient": 0, "master": 0, "states": 0}
    for line in ledger.lines:
        if line.kind == "optimizer_state":
            sums["master" if line.name.endswith("/master") else "states"] += line.bytes * line.count
        if line.kind == "weights" and line.name.endswith(".weight"):
            sums["weight"] += line.bytes * line.count
        if line.kind == "gradients":
            sums["gradient"] += line.bytes * line.count
    return {part: total / ledger.parameters.total for part, total in sums.items()}


@pytest.mark.parametrize("precision", PRECISIONS)
def test_bytes_per_parameter(precision: str) -> None:
    found = per_parameter(run(precision=precision))
    if precision == "megatron":
        assert found.pop("gradient") == 4 + 2  # the buffer, and each bf16 gradient, gone as soon as it was added
        assert found == {"weight": 2, "master": 4, "states": 8}
    else:
        assert found == PRECISIONS[precision].per_parameter()


@pytest.mark.parametrize(("precision", "quoted"), [("mixed", 16), ("megatron", 18), ("bf16", 8), ("fp32", 16)])
def test_bytes_at_the_optimizer(precision: str, quoted: int) -> None:
    """After backward, and beside the step's temporaries, just these bytes live; batch and buffers are the rest."""
    ledger = run(precision=precision, optimizer_implementation="fused")
    device_steps = 0 if PRECISIONS[precision].master else 512 * tensors(ledger)
    rest = ledger.phases["after_backward"] - device_steps - quoted * ledger.parameters.total
    assert rest == sum(line.bytes * line.count for line in ledger.lines
                       if line.name.startswith("input/") or "inv_freq" in line.name)


def tensors(ledger: Ledger) -> int:
    return sum(line.count for line in ledger.lines if line.kind == "weights" and line.name.endswith(".weight"))


def test_mixed_updates_without_temporaries() -> None:
    ledger = run(precision="mixed")
    assert ledger.phases["optimizer_peak"] == ledger.phases["after_backward"]
    assert not any(line.name.endswith("/step") for line in ledger.lines)
    assert any("DeepSpeed" in note and "18 bytes" in note for note in ledger.notes)


def test_under_mixed_other_optimizers_follow_the_master() -> None:
    """RMSprop has no fused form: its states and its temporaries are fp32."""
    parameters = run().parameters.total
    ledger = run(precision="mixed", optimizer="rmsprop")
    assert per_parameter(ledger)["states"] == 4
    assert ledger.phases["optimizer_peak"] - ledger.phases["after_backward"] == 4 * parameters
    muon = run(precision="mixed", optimizer="muon")
    assert {line.formula for line in muon.lines if line.name.endswith("q_proj.weight/update")} == {"4·a·d·h"}


def test_the_gradient_buffer_of_megatron_is_always_there() -> None:
    ledger = run(precision="megatron")
    (buffer,) = [line for line in ledger.lines if line.name == "gradient buffer"]
    assert (buffer.bytes, buffer.count, buffer.freed) == (4 * ledger.parameters.total, 1, "")
    assert all(row.by_kind["gradients"] >= buffer.bytes for row in ledger.chart)
    assert ledger.phases["step_start"] == ledger.phases["step_end"] == ledger.phases["after_backward"]
    accumulated = run(precision="megatron", accumulation=4)
    assert accumulated.phases["after_backward"] == ledger.phases["after_backward"]


def test_adapters_in_fp32_need_no_master() -> None:
    ledger = run(precision="mixed", lora_rank=4)
    assert not any(line.name.endswith("/master") for line in ledger.lines)
    assert per_parameter(ledger)["states"] * ledger.parameters.total == 8 * ledger.parameters.trained


def test_kept_gradients_are_there_when_the_step_starts() -> None:
    kept, dropped = run(precision="bf16", set_to_none=False), run(precision="bf16")
    gradients = 2 * dropped.parameters.total
    assert kept.phases["step_start"] - dropped.phases["step_start"] == gradients
    assert kept.phases["step_end"] == kept.phases["step_start"]
    assert kept.phases["after_backward"] == dropped.phases["after_backward"]


def test_the_first_step_makes_the_states_and_the_second_finds_them() -> None:
    first, steady = run(precision="bf16", step="first"), run(precision="bf16")
    states = 4 * steady.parameters.total
    assert steady.phases["step_start"] - first.phases["step_start"] == states
    assert first.phases["step_end"] == steady.phases["step_end"]
    assert first.phases["optimizer_peak"] == steady.phases["optimizer_peak"]
