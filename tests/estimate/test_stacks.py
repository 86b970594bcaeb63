"""Older stacks, and what a caller holds between steps: how many bytes each setting adds, and when."""

from __future__ import annotations

import pytest

from peakmem.errors import PeakmemError
from peakmem.estimate import estimate
from peakmem.tables.stacks import STACKS, find_stack

B, S, V = 2, 128, 32000
LOGITS = B * S * V
RUN = {"sequence": S, "batch": B, "precision": "bf16"}


def names(ledger: object, word: str) -> list[int]:
    return [line.bytes for line in ledger.lines if line.name.endswith(word)]  # type: ignore[attr-defined]


def test_the_shift_copies_the_logits_without_their_last_position() -> None:
    ledger = estimate("tinyllama-1.1b", stack="transformers-4.48", **RUN)
    assert names(ledger, "shifted logits") == [4 * B * (S - 1) * V]
    assert not names(estimate("tinyllama-1.1b", **RUN), "shifted logits")


def test_a_single_sequence_is_sliced_without_a_copy() -> None:
    ledger = estimate("tinyllama-1.1b", stack="transformers-4.48", **RUN | {"batch": 1})
    assert not names(ledger, "shifted logits")


def test_the_loss_holds_14_then_12_bytes_per_logit() -> None:
    """Of the shift: bf16 and fp32 logits, the copy, the log-probabilities. Where the model returns fp32, no bf16."""
    frozen = {"lora_rank": 1, "checkpoint": "full", "optimizer": "none"}
    newer = estimate("tinyllama-1.1b", stack="transformers-4.48", **RUN | frozen).phases["forward_peak"]
    older = estimate("tinyllama-1.1b", stack="transformers-4.45", **RUN | frozen).phases["forward_peak"]
    assert newer - older == 2 * LOGITS


def test_the_gradient_over_the_logits_saves_the_log_probabilities() -> None:
    ledger = estimate("tinyllama-1.1b", stack="transformers-4.48", loss="inplace", **RUN)
    assert not names(ledger, "log-probabilities") and names(ledger, "logsumexp")


def test_held_logits_are_alive_until_the_next_have_come() -> None:
    run = RUN | {"optimizer": "none", "loss": "sum"}
    dropped, held = (estimate("tinyllama-1.1b", outputs=word, **run).phases for word in ("dropped", "logits"))
    assert held["step_start"] - dropped["step_start"] == 2 * LOGITS
    assert held["forward_peak"] - dropped["forward_peak"] == 2 * LOGITS
    assert held["backward_peak"] - dropped["backward_peak"] == 2 * LOGITS  # the new ones; the old ones have gone
    assert held["step_end"] - dropped["step_end"] == 2 * LOGITS


def test_a_held_cache_is_two_tensors_a_layer() -> None:
    run = RUN | {"optimizer": "none", "loss": "sum"}
    logits, cache = (estimate("tinyllama-1.1b", outputs=word, **run).phases for word in ("logits", "logits+cache"))
    assert cache["step_end"] - logits["step_end"] == 22 * 2 * 2 * B * S * 4 * 64
    full = {"checkpoint": "full"}
    assert (estimate("tinyllama-1.1b", outputs="logits+cache", **run | full).phases
            == estimate("tinyllama-1.1b", outputs="logits", **run | full).phases)


def test_micro_batches_hand_their_outputs_on() -> None:
    one, many = (estimate("gpt2", sequence=64, outputs="logits", accumulation=n, precision="bf16").phases
                 for n in (1, 4))
    assert one["step_start"] == many["step_start"] and one["step_end"] == many["step_end"]


@pytest.mark.parametrize(("model", "count"), [("tinyllama-1.1b", 1100048384), ("llama-3.2-1b", 1498482688),
                                              ("falcon-7b", 7217189760), ("gemma-2-2b", 3204165888)])
def test_litgpt_never_ties_the_head(model: str, count: int) -> None:
    ledger = estimate(model, implementation="litgpt", loss="pieces", sequence=200, precision="bf16")
    assert ledger.parameters.total == count


def test_litgpt_adapts_by_its_own_words() -> None:
    run = {"implementation": "litgpt", "loss": "pieces", "sequence": 200, "precision": "bf16", "lora_rank": 8}
    ledger = estimate("llama-2-7b", lora_targets=("query", "value"), **run)
    assert ledger.parameters.trained == 32 * 8 * 4 * 4096  # the tables of the resource page: 4.2 M
    with pytest.raises(PeakmemError, match="query, key, value, projection, mlp, head"):
        estimate("llama-2-7b", lora_targets=("q_proj",), **run)
    with pytest.raises(PeakmemError, match="512 pieces"):
        estimate("llama-2-7b", lora_targets=("query",), **run | {"sequence": 128 * 512 + 1})


def test_what_index_copy_keeps() -> None:
    run = {"implementation": "litgpt", "loss": "pieces", "sequence": 200, "precision": "bf16", "lora_rank": 8}
    ledger = estimate("llama-2-7b", lora_targets=("query", "value"), **run)
    kept = [line for line in ledger.lines if line.name.endswith("adapter's part") and "index_copy" in line.why]
    assert {line.bytes for line in kept} == {2 * 200 * 2 * 4096} and sum(line.count for line in kept) == 32


def test_every_stack_is_a_choice_with_a_source() -> None:
    assert all(find_stack(name).source for name in STACKS if name != "current")
    with pytest.raises(PeakmemError, match="Did you mean"):
        estimate("gpt2", stack="transformers-4.47")
