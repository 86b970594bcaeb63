"""Adapters of peft against peft itself on the fake GPU: dropout, a single expert, autocast over 16-bit weights."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import pytest

from peakmem.errors import Impossible
from peakmem.estimate import estimate
from peakmem.estimate.settings import structure_of
from peakmem.immutable import replace
from peakmem.readers.hf_config import from_config
from peakmem.setup import Setup

LLAMA: dict[str, Any] = {
    "model_type": "llama", "num_hidden_layers": 3, "hidden_size": 64, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 168, "vocab_size": 300, "tie_word_embeddings": False,
}
MIXTRAL: dict[str, Any] = {
    "model_type": "mixtral", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 96, "vocab_size": 300, "sliding_window": None,
    "num_local_experts": 1, "num_experts_per_tok": 1,
}


@pytest.mark.parametrize(("config", "given"), [
    (LLAMA, dict(precision="bf16", lora_dropout=0.1, checkpoint="full")),
    (LLAMA, dict(precision="amp-bf16", weights="bf16", lora_dropout=0.1)),
    (LLAMA, dict(precision="amp-bf16", weights="bf16", lora_rank=0)),
    (MIXTRAL, dict(precision="bf16")),
])
def test_a_step_equals_the_traced_one(config: dict[str, Any], given: dict[str, Any]) -> None:
    pytest.importorskip("peft")
    from tests.estimate.traced_module import estimated, traced

    setup = Setup.of(**{"sequence": 24, "batch": 2, "lora_rank": 8, "optimizer_implementation": "foreach"} | given)
    real, ours = traced(config, setup, lambda model: model), estimated(config, setup)
    for phase in ("forward", "backward", "optimizer", "clear"):
        assert ours[phase] == real[phase], phase


def test_dropout_costs_a_mask_and_what_was_dropped() -> None:
    given = dict(lora_rank=8, sequence=512, precision="bf16")
    without, with_it = (estimate(from_config(LLAMA), **given, **more) for more in ({}, {"lora_dropout": 0.1}))
    names = {line.name.rpartition("/")[2] for line in with_it.lines} - {line.name.rpartition("/")[2]
                                                                       for line in without.lines}
    assert {"dropped out", "dropout mask"} <= names
    assert with_it.phases["after_forward"] > without.phases["after_forward"]
    with pytest.raises(Impossible, match="lora-dropout"):
        estimate(from_config({**MIXTRAL, "num_local_experts": 4}), lora_dropout=0.1, **given)


def test_a_layer_under_a_reentrant_checkpoint_holds_its_output_during_its_backward(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """torch/utils/checkpoint.py, CheckpointFunction.backward: `outputs` is bound while autograd runs."""
    pytest.importorskip("transformers")
    from tests.estimate import traced_module

    def reentrant(model: Any) -> Any:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
        return model

    def whole(*given: Any, **more: Any) -> Any:
        structure, numbers = structure_of(*given, **more)
        return replace(structure, early_stop=False), numbers

    config = {**LLAMA, "vocab_size": 40}  # so that the peak is in a layer
    setup = Setup.of(sequence=72, batch=2, precision="bf16", optimizer_implementation="foreach")
    real = traced_module.traced(config, setup, reentrant)
    monkeypatch.setattr(traced_module, "structure_of", whole)
    ours = traced_module.estimated(config, replace(setup, checkpoint="full"))
    for phase in ("forward", "backward"):
        levels = [list(accumulate(changes[phase])) for changes in (real, ours)]
        assert [max(levels[0]), levels[0][-1]] == [max(levels[1]), levels[1][-1]], phase
