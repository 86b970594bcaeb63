"""The sentence of a line comes from what consumes its tensor, and no two lines share one."""

from __future__ import annotations

import pytest

from peakmem.errors import PeakmemError
from peakmem.estimate import estimate
from tests.estimate.test_books import FAMILIES, LEVERS, model_of


@pytest.mark.parametrize("family", FAMILIES)
def test_no_two_lines_share_a_sentence(family: str) -> None:
    for settings in ({}, *LEVERS.values()):
        try:
            lines = estimate(model_of(family), sequence=16, batch=2, **settings).lines
        except PeakmemError:
            continue
        assert len({line.why for line in lines}) == len(lines)
        assert all(line.why and line.source for line in lines)


def test_a_shared_tensor_names_every_use() -> None:
    lines = {line.name: line for line in estimate("llama-3.1-8b", precision="bf16").lines}
    shared = lines["model.layers.*.input_layernorm/output"].why
    assert all(f"self_attn.{name}_proj" in shared for name in "qkv")
    assert shared.endswith("one tensor, 3 uses")
    assert "up_proj" in lines["model.layers.*.mlp/silu"].why


def test_what_nothing_saves_says_how_long_it_lives() -> None:
    lines = {line.name: line for line in estimate("llama-3.1-8b", precision="bf16").lines}
    assert "nothing keeps it longer" in lines["loss/log-probabilities gradient"].why


def test_settings_without_effect_are_said() -> None:
    """What was given and changes nothing is named in one note."""
    idle = estimate("gpt2", run="inference", optimizer="sgd", checkpoint="full").notes
    assert "no effect in inference: --optimizer, --checkpoint" in idle
    idle = estimate("gpt2", gpus=8, generate=3, lora_targets=("c_attn",)).notes
    assert {"no effect in training: --generate", "no effect without --lora-rank: --lora-targets"} <= set(idle)
    assert any(note.startswith("--gpus 8 without --shard") for note in idle)
    assert not any("no effect" in note for note in estimate("gpt2").notes)


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_is_alive_less_than_never(family: str) -> None:
    """What a repeated layer frees of the one before it is counted with what that one made."""
    for accumulation in (1, 3):
        try:
            lines = estimate(model_of(family), sequence=16, batch=2, accumulation=accumulation).lines
        except PeakmemError:
            continue
        assert not [line for line in lines if line.at_peak < 0]
