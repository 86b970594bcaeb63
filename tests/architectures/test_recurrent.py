"""Mamba, Jamba, Nemotron-H: traced steps, and loops over tokens that are folded within their layer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from peakmem import estimate
from peakmem.errors import Impossible, Unreadable
from peakmem.estimate import program_of
from peakmem.estimate.envelope import envelope
from peakmem.estimate.replay import replay, size, value
from peakmem.estimate.settings import structure_of
from peakmem.model import Model
from peakmem.readers.hf_config import from_config
from peakmem.setup import Setup
from tests.reference_steps import DATA, differences, events_by_phase

TINY = {record["id"]: record for record in json.loads((DATA / "traced_recurrent.json").read_text())}
JAMBA: dict[str, Any] = {
    "model_type": "jamba", "hidden_size": 40, "intermediate_size": 56, "num_hidden_layers": 9, "vocab_size": 97,
    "num_attention_heads": 4, "num_key_value_heads": 2, "num_experts": 4, "attn_layer_period": 3,
    "attn_layer_offset": 1, "mamba_d_state": 6, "mamba_dt_rank": 5}


@pytest.mark.parametrize("name", TINY)
def test_tiny_steps(name: str) -> None:
    """Loops are folded here: three steps stand for all."""
    assert differences(TINY[name]) == {}


@pytest.mark.parametrize("name", TINY)
def test_every_allocation(name: str) -> None:
    """Nothing is folded here: every token's step is written down."""
    for phase, (ours, want) in events_by_phase(TINY[name]).items():
        assert ours == want, phase


def jamba() -> Model:
    return from_config(JAMBA)


@pytest.mark.parametrize("tokens", [1, 2, 3, 4, 50])
@pytest.mark.parametrize("settings", [{}, {"checkpoint": "full", "precision": "amp-bf16"}, {"run": "inference"}])
def test_a_folded_loop_is_what_its_steps_are(tokens: int, settings: dict[str, Any]) -> None:
    setup = Setup.of(sequence=tokens, batch=2, **settings)
    levels = []
    for unfold in (False, True):
        structure, numbers = structure_of(jamba(), setup, unfold)
        levels.append(replay(program_of(structure), numbers))
    assert levels[0] == levels[1]


@pytest.mark.parametrize("settings", [{}, {"checkpoint": "full"}, {"run": "inference"}])
def test_the_account_of_a_loop_adds_up(settings: dict[str, Any]) -> None:
    """Lines and kinds at the peak, the chart and the steps over time say the same."""
    ledger = estimate(jamba(), sequence=300, **settings)
    assert sum(ledger.by_kind().values()) == ledger.peak.bytes == ledger.totals.tensors
    assert sum(line.bytes * line.at_peak for line in ledger.lines if not line.scratch
               and line.kind != "context") == ledger.peak.bytes
    assert max(row.peak for row in ledger.chart) == ledger.peak.bytes
    assert max(sum(kinds.values()) for _, kinds in ledger.timeline) == ledger.peak.bytes


def test_the_envelope_of_a_loop_has_its_peak() -> None:
    structure, numbers = structure_of(jamba(), Setup.of(sequence=70))
    program = program_of(structure)
    rounded = [-(-int(size(key, numbers)) // 512) * 512 for key in program.keys]
    highest = max(sum(count * rounded[at] * (value(letter, numbers) if letter else 1) for (at, letter), count in terms)
                  for terms in envelope(program))
    assert highest == max(level.peak for level in replay(program, numbers).values())


def test_layers_are_counted_where_a_loop_cuts_them() -> None:
    """A moment's layer and thirds are those of the layers, however many pieces a layer has."""
    ledger = estimate(from_config(JAMBA | {"vocab_size": 8}), sequence=400)
    assert ledger.peak.moment.split("/")[1] in {f"layers.{i}" for i in range(9)}
    rows = {row.moment: row.end for row in ledger.chart}
    assert rows["F1"] < rows["F2"] < rows["F3"] and rows["B3"] > rows["B2"] > rows["B1"]


@pytest.mark.parametrize("config", ["mamba-130m", "jamba-1.5-mini"])
def test_long_sequences_need_no_longer_than_short_ones(config: str) -> None:
    """The tape does not grow with the tokens; what takes a request for each step is then not known."""
    short, _ = structure_of(preset(config), Setup.of(sequence=64))
    long, _ = structure_of(preset(config), Setup.of(sequence=65536))
    assert program_of(short) == program_of(long)
    assert estimate(config, sequence=65536, gpu="H100").totals.reserved is None


def preset(name: str) -> Model:
    from peakmem.tables.models import find_model

    return find_model(name)


@pytest.mark.parametrize("variant", ["tiny-mamba/bf16/eager/plain/b2s9", "tiny-mamba2/amp/eager/plain/b3s33",
                                     "tiny-nemotron_h/bf16/sdpa/plain/b2s37"])
def test_adapters_where_peft_refuses_them(variant: str) -> None:
    model = from_config(TINY[variant]["config"])
    with pytest.raises(Impossible, match="out_proj"):
        estimate(model, sequence=8, lora_rank=4)
    assert estimate(model, sequence=8, lora_rank=4, lora_targets=("in_proj",)).parameters.trained


@pytest.mark.parametrize(("changes", "words"), [
    ({"hybrid_override_pattern": "ME*-"}, "hybrid_override_pattern has 4 layers, num_hidden_layers 6"),
    ({"hybrid_override_pattern": None, "layers_block_type": ["mlp"] * 5}, "layers_block_type has 5 layers"),
    ({"hybrid_override_pattern": None}, "layers_block_type has 4 layers by default"),
])
def test_a_pattern_of_another_length_is_refused(changes: dict[str, Any], words: str) -> None:
    config = TINY["tiny-nemotron_h/bf16/sdpa/plain/b2s37"]["config"] | {"num_hidden_layers": 6} | changes
    with pytest.raises(Impossible, match=words):
        from_config({name: value for name, value in config.items() if value is not None})


@pytest.mark.parametrize("field", ["attn_layer_offset", "expert_layer_offset"])
def test_offsets_beyond_their_period_are_refused(field: str) -> None:
    with pytest.raises(Impossible, match=field):
        from_config(JAMBA | {field: 3, "attn_layer_period": 3, "expert_layer_period": 3})


@pytest.mark.parametrize(("changes", "words"), [
    ({"expand": 3}, "expand 3 times hidden_size 48 must be num_heads 6 times head_dim 16"),
    ({"head_dim": 8}, "must be num_heads 6 times head_dim 8"),
    ({"n_groups": 4}, "n_groups 4 must divide num_heads 6"),
    ({"hidden_act": "gelu"}, "peakmem knows silu in Mamba 2"),
])
def test_what_mamba_2_cannot_be_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises((Impossible, Unreadable), match=words):
        from_config(TINY["tiny-mamba2/amp/eager/plain/b3s33"]["config"] | changes)
