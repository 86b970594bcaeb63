"""More decoders that are Llama's kin: parameters, traced steps and generation of the real models."""

from __future__ import annotations

import json
from typing import Any

import pytest

from peakmem.errors import Impossible, Unreadable
from peakmem.estimate.interpret import interpret
from peakmem.estimate.replay import compiled, replay
from peakmem.estimate.settings import structure_of
from peakmem.readers.hf_config import from_config
from peakmem.setup import Setup
from tests.architectures.test_decoders import real_model, sides
from tests.generations import compared
from tests.reference_steps import DATA, differences, events_by_phase

RECORDS = json.loads((DATA / "traced_llama_kin.json").read_text())
TINY = {record["id"]: record for record in RECORDS if "bytes" in record}
GENERATED = {record["id"]: record for record in RECORDS if "generate" in record}

BASE = {"hidden_size": 48, "intermediate_size": 56, "num_hidden_layers": 4, "num_attention_heads": 6,
        "num_key_value_heads": 2, "vocab_size": 97, "max_position_embeddings": 64, "pad_token_id": 0}
WINDOWS = {"sliding_window": 20, "layer_types": ["sliding_attention", "full_attention"] * 2}
DOTS = {"model_type": "dots1", "moe_intermediate_size": 24, "n_routed_experts": 8, "n_shared_experts": 2,
        "num_experts_per_tok": 2, "first_k_dense_replace": 1}
GPT_NEO = {"model_type": "gpt_neo", "num_layers": 4, "num_heads": 6, "intermediate_size": None,
           "attention_types": [[["global", "local"], 2]], "window_size": 20}
VARIANTS: dict[str, dict[str, Any]] = {
    "apertus": {"model_type": "apertus"},
    "apertus, silu": {"model_type": "apertus", "hidden_act": "silu", "attention_bias": True, "head_dim": 10,
                      "tie_word_embeddings": True},
    "arcee": {"model_type": "arcee", "head_dim": 10},
    "arcee, biases": {"model_type": "arcee", "attention_bias": True, "mlp_bias": True, "tie_word_embeddings": True},
    "cohere2": {"model_type": "cohere2", "sliding_window": 20},
    "cohere2, listed": {"model_type": "cohere2", **WINDOWS, "attention_bias": True, "tie_word_embeddings": False},
    "cwm": {"model_type": "cwm", "head_dim": 10, "sliding_window": 20, "mlp_bias": True},
    "dots1": {**DOTS, "n_group": 2, "topk_group": 1, "norm_topk_prob": True},
    "dots1, windows": {**DOTS, "sliding_window": 20, "max_window_layers": 0, "attention_bias": True},
    "ernie4_5": {"model_type": "ernie4_5", "head_dim": 10},
    "ernie4_5, biases": {"model_type": "ernie4_5", "head_dim": 8, "use_bias": True, "tie_word_embeddings": False},
    "ernie4_5_moe": {"model_type": "ernie4_5_moe", "moe_num_experts": 6, "moe_k": 2, "moe_intermediate_size": 24},
    "ernie4_5_moe, biases": {"model_type": "ernie4_5_moe", "moe_num_experts": 6, "moe_k": 2, "use_bias": True,
                             "moe_intermediate_size": 24, "moe_num_shared_experts": 0, "moe_layer_start_index": 0,
                             "moe_layer_interval": 2, "tie_word_embeddings": False},
    "exaone4": {"model_type": "exaone4", "sliding_window": 20},
    "exaone4, no windows": {"model_type": "exaone4", "sliding_window": None, "layer_types": ["full_attention"] * 4},
    "gpt_neo": GPT_NEO,
    "gpt_neo, untied": GPT_NEO | {"resid_dropout": 0.1, "attention_dropout": 0.1, "embed_dropout": 0.1,
                                  "tie_word_embeddings": False, "intermediate_size": 56},
    "granitemoe": {"model_type": "granitemoe", "num_local_experts": 6, "num_experts_per_tok": 2},
    "helium": {"model_type": "helium", "head_dim": 8, "attention_bias": True, "mlp_bias": True},
    "hunyuan_v1_dense": {"model_type": "hunyuan_v1_dense", "head_dim": 10},
    "hunyuan_v1_dense, biases": {"model_type": "hunyuan_v1_dense", "head_dim": 8, "attention_bias": True,
                                 "rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0}},
    "hunyuan_v1_moe": {"model_type": "hunyuan_v1_moe", "head_dim": 10, "num_experts": 6, "moe_topk": [2, 2, 2, 2]},
    "iquestcoder": {"model_type": "iquestcoder", "head_dim": 10},
    "ministral3": {"model_type": "ministral3", "head_dim": 10},
    "nemotron": {"model_type": "nemotron", "head_dim": 12},
    "nemotron, biases": {"model_type": "nemotron", "attention_bias": True, "mlp_bias": True,
                         "tie_word_embeddings": True},
    "qwen3_5_moe_text": {
        "model_type": "qwen3_5_moe_text", "head_dim": 12, "linear_key_head_dim": 6, "linear_value_head_dim": 10,
        "linear_num_key_heads": 2, "linear_num_value_heads": 4, "num_experts": 6, "num_experts_per_tok": 2,
        "moe_intermediate_size": 24, "shared_expert_intermediate_size": 20},
    "ministral3, a window": {"model_type": "ministral3", "head_dim": 8, "sliding_window": 20},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_parameters_are_those_of_transformers(variant: str) -> None:
    config = BASE | VARIANTS[variant]
    structure, numbers = structure_of(from_config(config), Setup.of(sequence=16), unfold=True)
    ours = []
    for key, p in interpret(structure).parameters.items():
        layer = key.partition(".")[0] if p.full_name != key else ""
        ours.append((p.full_name.replace("*", layer), sides(p.dims, numbers)))
    assert ours == [(name, tuple(p.shape)) for name, p in real_model(config).named_parameters()]


@pytest.mark.parametrize("name", TINY)
def test_tiny_steps(name: str) -> None:
    assert differences(TINY[name]) == {}


@pytest.mark.parametrize("name", TINY)
def test_every_allocation(name: str) -> None:
    for phase, (ours, want) in events_by_phase(TINY[name]).items():
        assert ours == want, phase


@pytest.mark.parametrize("name", GENERATED)
def test_generation_is_the_real_model_s(name: str) -> None:
    for phase, (ours, want) in compared(GENERATED[name]).items():
        assert ours == want, phase


def test_every_family_is_traced() -> None:
    families = {config["model_type"] for config in VARIANTS.values()}
    assert {record["config"]["model_type"] for record in TINY.values()} == families
    assert {record["config"]["model_type"] for record in GENERATED.values()} == families


@pytest.mark.parametrize("variant", VARIANTS)
def test_generation_folds(variant: str) -> None:
    """Prefill and decoding of n layers are those of one body, n times."""
    levels = []
    for unfold in (False, True):
        setup = Setup.of(run="inference", sequence=16, generate=8, precision="bf16")
        structure, numbers = structure_of(from_config(BASE | VARIANTS[variant]), setup, unfold=unfold)
        levels.append(replay(compiled(interpret(structure)), numbers))
    assert levels[0] == levels[1]


@pytest.mark.parametrize(("config", "words"), [
    ({"model_type": "arcee", "num_attention_heads": 24, "head_dim": 64}, "not divisible"),
    ({"model_type": "helium", "head_dim": 64}, "output projection is as wide"),
    ({"model_type": "exaone4", "sliding_window": None}, "give layer_types"),
    ({"model_type": "exaone4", "sliding_window_pattern": "LLLG"}, "sliding_window_pattern"),
    ({"model_type": "dots1"}, "n_routed_experts is missing"),
    ({"model_type": "gpt_neo", "num_layers": 3}, "attention_types describes 24"),
    ({"model_type": "gpt_neo", "attention_types": "global"}, "attention_types"),
    ({"model_type": "nemotron"}, "num_key_value_heads is missing"),
    ({"model_type": "ernie4_5_moe", "moe_layer_start_index": 40}, "no layer has experts"),
    ({"model_type": "hunyuan_v1_moe", "moe_topk": [1, 2]}, "moe_topk"),
])
def test_what_transformers_cannot_run_is_refused(config: dict[str, Any], words: str) -> None:
    with pytest.raises((Impossible, Unreadable), match=words):
        from_config(config)
