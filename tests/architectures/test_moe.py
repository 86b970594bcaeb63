"""Mixtral and Qwen3-MoE: parameters of the real models, with and without adapters; reference steps to the byte."""

from __future__ import annotations

import json
from typing import Any

import pytest

from peakmem.errors import Impossible
from peakmem.estimate import estimate
from peakmem.estimate.interpret import interpret
from peakmem.estimate.replay import compiled, replay
from peakmem.estimate.settings import structure_of
from peakmem.readers.hf_config import from_config
from peakmem.setup import Setup
from tests.architectures.test_decoders import real_model, sides
from tests.reference_steps import DATA, differences, events_by_phase, ids_of, records

# Tiny models traced in the same way as traced_steps.json: adapters, dense layers, windows, router losses.
TINY = {record["id"]: record for record in json.loads((DATA / "traced_moe.json").read_text())}

SIZES = {
    "hidden_size": 40, "intermediate_size": 56, "num_hidden_layers": 5, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 97, "max_position_embeddings": 64, "pad_token_id": 0,
}
MIXTRAL = {"model_type": "mixtral", "num_local_experts": 3, "num_experts_per_tok": 2}
QWEN = {
    "model_type": "qwen3_moe", "num_experts": 3, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "head_dim": 14,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "mixtral": MIXTRAL,
    "mixtral, tied": MIXTRAL | {"tie_word_embeddings": True},
    "qwen3_moe": QWEN,
    "qwen3_moe, biases": QWEN | {"attention_bias": True},
    "qwen3_moe, every second": QWEN | {"decoder_sparse_step": 2},
    "qwen3_moe, first dense": QWEN | {"mlp_only_layers": [0, 1]},
    "qwen3_moe, no experts": QWEN | {"num_experts": 0},
}


def parameters(config: dict[str, Any], **settings: Any) -> list[tuple[str, tuple[int, ...]]]:
    structure, numbers = structure_of(from_config(config), Setup.of(sequence=16, **settings), unfold=True)
    found = []
    for key, p in interpret(structure).parameters.items():
        layer = key.partition(".")[0] if p.full_name != key else ""
        found.append((p.full_name.replace("*", layer), sides(p.dims, numbers)))
    return found


@pytest.mark.parametrize("variant", VARIANTS)
def test_parameters_are_those_of_transformers(variant: str) -> None:
    config = SIZES | VARIANTS[variant]
    assert parameters(config) == [(name, tuple(p.shape)) for name, p in real_model(config).named_parameters()]


@pytest.mark.parametrize("variant", VARIANTS)
def test_adapters_are_those_of_peft(variant: str) -> None:
    """On routers and experts too, where peft wraps the parameter; twice the rank for gate and up together."""
    peft = pytest.importorskip("peft")
    config = SIZES | VARIANTS[variant]
    settings = peft.LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    model = peft.get_peft_model(real_model(config), settings)
    want = [(name.removeprefix("base_model.model."), tuple(p.shape)) for name, p in model.named_parameters()]
    assert parameters(config, lora_rank=4) == want


@pytest.mark.parametrize("name", ids_of("mixtral", "qwen3_moe"))
def test_reference_steps(name: str) -> None:
    assert differences(records()[name]) == {}


@pytest.mark.parametrize("name", TINY)
def test_tiny_steps(name: str) -> None:
    assert differences(TINY[name]) == {}


@pytest.mark.parametrize("name", [*TINY, "tiny-mixtral/bf16/b2s37"])
def test_every_allocation(name: str) -> None:
    for phase, (ours, want) in events_by_phase(TINY.get(name) or records()[name]).items():
        assert ours == want, phase


@pytest.mark.parametrize("more", [{}, {"decoder_sparse_step": 2}, {"mlp_only_layers": [0, 1]},
                                  {"output_router_logits": True, "decoder_sparse_step": 3}])
@pytest.mark.parametrize("lora", [0, 4])
def test_folded_layers_are_the_unfolded_ones(more: dict[str, Any], lora: int) -> None:
    model = from_config(SIZES | QWEN | {"num_hidden_layers": 12} | more)
    levels = []
    for unfold in (False, True):
        structure, numbers = structure_of(model, Setup.of(sequence=16, precision="bf16", lora_rank=lora), unfold=unfold)
        levels.append(replay(compiled(interpret(structure)), numbers))
    assert levels[0] == levels[1]


def test_an_auxiliary_loss_without_experts_is_refused() -> None:
    """transformers reads the first router's logits, whether there are any or not."""
    with pytest.raises(Impossible, match="no layer has experts"):
        estimate(from_config(SIZES | QWEN | {"num_hidden_layers": 2, "mlp_only_layers": [0, 1],
                                             "output_router_logits": True}), sequence=16)
