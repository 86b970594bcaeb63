"""Experts of decoded tokens: what is copied, when, and what the answer says about it."""

from __future__ import annotations

from typing import Any

import pytest

from peakmem.estimate import estimate
from peakmem.readers.hf_config import from_config

HIDDEN, WIDTH, EXPERTS, CHOSEN = 96, 72, 6, 3
QWEN: dict[str, Any] = {
    "model_type": "qwen3_moe", "hidden_size": HIDDEN, "num_hidden_layers": 3, "vocab_size": 300, "head_dim": 16,
    "num_attention_heads": 6, "num_key_value_heads": 2, "moe_intermediate_size": WIDTH, "num_experts": EXPERTS,
    "num_experts_per_tok": CHOSEN}
GPT_OSS: dict[str, Any] = QWEN | {"model_type": "gpt_oss", "intermediate_size": WIDTH, "num_local_experts": EXPERTS}
LLAMA_4: dict[str, Any] = QWEN | {"model_type": "llama4_text", "intermediate_size": WIDTH, "num_local_experts": EXPERTS}


def decoded(config: dict[str, Any] = QWEN, **given: Any) -> Any:
    usual = {"run": "inference", "precision": "bf16", "sequence": 40, "generate": 9, "batch": 5}
    return estimate(from_config(config), **usual | given)


def copies(ledger: Any) -> dict[str, int]:
    """Bytes of one layer's copies in one step, by what is copied."""
    found = [line for line in ledger.lines if line.name.endswith("of each row's expert")]
    assert all((line.count, line.born.partition("/")[0]) in ((3, "first decode"), (3, "last decode")) for line in found)
    return {line.name.rpartition("/")[2].partition(" ")[0]: line.bytes for line in found}


def test_each_row_has_its_own_matrices_and_biases() -> None:
    rows = 16 * CHOSEN
    matrices = {"gate_up_proj": rows * 2 * WIDTH * HIDDEN * 2, "down_proj": rows * WIDTH * HIDDEN * 2}
    assert copies(decoded(batch=16)) == matrices
    assert copies(decoded(GPT_OSS, attention="eager", batch=16)) == matrices | {
        "gate_up_proj_bias": rows * 2 * WIDTH * 2, "down_proj_bias": rows * HIDDEN * 2}


def test_the_peak_of_decoding_grows_with_both_copies_of_each_row_more() -> None:
    """The first is alive until the second is there."""
    peaks = [decoded(batch=batch, sequence=8, generate=2).phases["decode_peak"] for batch in (64, 65)]
    per_row = CHOSEN * 3 * WIDTH * HIDDEN * 2
    assert per_row <= peaks[1] - peaks[0] < per_row * 1.2


@pytest.mark.parametrize("given", [{"beams": 2}, {"kv_cache": "paged"}, {"weights": "fp8"}, {"generate": 1}])
def test_beam_search_servers_and_packed_experts_copy_none(given: dict[str, Any]) -> None:
    assert not copies(decoded(**given))


@pytest.mark.parametrize("given", [{"kv_cache": "static"}, {"weights": "nf4"}, {"prefill_chunk": 8}, {"sequence": 1}])
def test_generate_copies_whatever_else_is_set_but_not_for_the_prompt(given: dict[str, Any]) -> None:
    assert len(copies(decoded(**given))) == 2


def test_experts_with_adapters_are_copied_with_them() -> None:
    assert copies(decoded(lora_rank=4, lora_targets="all-linear")) == copies(decoded())


@pytest.mark.parametrize("config, given, words", [
    (QWEN, {}, "for decoding batched_mm"), (QWEN, {"beams": 3}, "beam search does not switch"),
    (QWEN, {"kv_cache": "paged"}, "servers copy no expert's matrices"), (QWEN, {"weights": "fp8"}, ""),
    (QWEN, {"generate": 1}, ""), (LLAMA_4, {}, ""),
])
def test_a_note_names_the_kernel(config: dict[str, Any], given: dict[str, Any], words: str) -> None:
    found = [note for note in decoded(config, **given).notes if note.startswith("experts: ")]
    assert len(found) == bool(words) and all(words in note for note in found)
