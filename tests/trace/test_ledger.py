"""A trace's ledger adds up, and says what an estimate's says where both know it."""

from __future__ import annotations

from typing import Any

import pytest
from steps import GPT2, LLAMA, setting

from peakmem import Model, Setup, estimate
from peakmem.ledger import TRAINING_MOMENTS, Ledger
from peakmem.ledger_json import from_json
from peakmem.readers.hf_config import from_config
from peakmem.trace.models import as_json
from peakmem.trace.process import Worker

DEEP = LLAMA | {"num_hidden_layers": 5, "architectures": ["LlamaForCausalLM"], "max_position_embeddings": 512}


def traced(worker: Worker, of: dict[str, Any]) -> Ledger:
    """Return the ledger of a setting."""
    return from_json(worker.call(as_json, of, {}, ()))


@pytest.fixture(scope="module")
def ledger(worker: Worker) -> Ledger:
    """A checkpointed Llama under autocast."""
    return traced(worker, setting(DEEP, dtype="fp32", autocast="bf16", attention="sdpa", checkpointing=True))


def test_kinds_add_up_at_every_moment(ledger: Ledger) -> None:
    assert [row.moment for row in ledger.chart] == list(TRAINING_MOMENTS)
    for row in ledger.chart:
        assert sum(row.by_kind.values()) == row.end
        assert sum(row.peak_by_kind.values()) == row.peak


def test_the_highest_moment_is_the_peak(ledger: Ledger) -> None:
    assert ledger.totals.tensors == ledger.peak.bytes == max(row.peak for row in ledger.chart)
    assert sum(line.bytes_at_peak for line in ledger.lines) == ledger.peak.bytes


def test_the_timeline_begins_and_ends_at_the_steps_ends(ledger: Ledger) -> None:
    levels = [sum(kinds.values()) for _, kinds in ledger.timeline]
    assert levels[0] == ledger.phases["step_start"] and levels[-1] == ledger.phases["step_end"]
    assert max(levels) == ledger.peak.bytes


def test_answers_are_noted(ledger: Ledger) -> None:
    assert any("asked a tensor for its value" in note for note in ledger.notes)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_every_moment_ends_as_the_estimates(worker: Worker, checkpoint: bool) -> None:
    ours = traced(worker, setting(DEEP, attention="sdpa", checkpointing=checkpoint))
    model: Model = from_config(DEEP)
    settings = Setup.of(
        precision="bf16",
        sequence=33,
        batch=2,
        checkpoint="full" if checkpoint else "none",
        optimizer_implementation="foreach",
    )
    theirs = estimate(model, settings)
    assert [(row.moment, row.end) for row in ours.chart] == [(row.moment, row.end) for row in theirs.chart]
    assert ours.phases == theirs.phases


def test_a_model_without_layers_has_a_chart(worker: Worker) -> None:
    ledger = traced(worker, setting(GPT2 | {"n_layer": 1}))
    assert [row.moment for row in ledger.chart] == list(TRAINING_MOMENTS)
