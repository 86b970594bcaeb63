"""DeepSeek, gpt-oss, Llama 4, Qwen3-Next, Qwen3.5, Mamba, Mamba 2, Jamba, Nemotron-H: names, traced steps, states."""

from __future__ import annotations

import json
from typing import Any

import pytest

from peakmem import estimate
from peakmem.estimate.parameters import define
from peakmem.estimate.settings import structure_of
from peakmem.estimate.tape import Tape, writing
from peakmem.estimate.whole import Whole
from peakmem.readers.hf_config import from_config
from peakmem.setup import Setup
from tests.architectures.test_decoders import real_model, sides
from tests.reference_steps import DATA, differences, events_by_phase

TINY = {record["id"]: record for record in json.loads((DATA / "traced_recent.json").read_text())}

BASE: dict[str, Any] = {"hidden_size": 40, "intermediate_size": 56, "num_hidden_layers": 4, "vocab_size": 97,
                        "num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0}
LATENT: dict[str, Any] = {"kv_lora_rank": 12, "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 14,
                          "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1,
                          "moe_intermediate_size": 20, "first_k_dense_replace": 1, "num_key_value_heads": 4}
DELTA: dict[str, Any] = {"head_dim": 12, "linear_key_head_dim": 6, "linear_value_head_dim": 10,
                         "linear_num_key_heads": 2, "linear_num_value_heads": 6,
                         "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5,
                                             "mrope_section": [1, 1, 1], "mrope_interleaved": True}}
VARIANTS: dict[str, dict[str, Any]] = {
    "deepseek_v2": {"model_type": "deepseek_v2", **LATENT, "q_lora_rank": None},
    "deepseek_v2, biases": {"model_type": "deepseek_v2", **LATENT, "q_lora_rank": 16, "attention_bias": True,
                            "mlp_bias": True},
    "deepseek_v3": {"model_type": "deepseek_v3", **LATENT, "q_lora_rank": 16},
    "gpt_oss": {"model_type": "gpt_oss", "head_dim": 12, "num_local_experts": 4, "num_experts_per_tok": 2},
    "llama4": {"model_type": "llama4_text", "head_dim": 12, "num_local_experts": 4, "intermediate_size_mlp": 72,
               "interleave_moe_layer_step": 2},
    "qwen3_next": {"model_type": "qwen3_next", **DELTA, "num_experts": 4, "num_experts_per_tok": 2,
                   "moe_intermediate_size": 20, "shared_expert_intermediate_size": 28, "mlp_only_layers": [1]},
    "qwen3_5": {"model_type": "qwen3_5_text", **DELTA},
    "mamba": {"model_type": "mamba", "state_size": 6, "use_bias": True},
    "mamba2": {"model_type": "mamba2", "state_size": 6, "num_heads": 4, "head_dim": 20, "n_groups": 2,
               "use_bias": True},
    "jamba": {"model_type": "jamba", "num_experts": 4, "attn_layer_period": 2, "attn_layer_offset": 1,
              "mamba_d_state": 6, "mamba_dt_rank": 5},
    "nemotron_h": {"model_type": "nemotron_h", "hybrid_override_pattern": "ME*-", "head_dim": 12, "n_groups": 2,
                   "ssm_state_size": 6, "mamba_num_heads": 4, "mamba_head_dim": 10, "n_routed_experts": 4,
                   "moe_intermediate_size": 20, "moe_shared_expert_intermediate_size": 28},
}


def parameters_of(config: dict[str, Any]) -> list[tuple[str, tuple[int, ...]]]:
    """Names and shapes of all parameters, in the order of definition."""
    from peakmem.architectures import code_of

    structure, numbers = structure_of(from_config(config), Setup.of(sequence=16, run="inference"), unfold=True)
    tape = Tape(structure.ones)
    tape.parts = Whole(tape, structure)
    with writing(tape):
        define(tape, structure, code_of(structure.architecture))
    ours = []
    for key, p in tape.parameters.items():
        layer = key.partition(".")[0] if p.full_name != key else ""
        ours.append((p.full_name.replace("*", layer), sides(p.dims, numbers)))
    return ours


@pytest.mark.parametrize("variant", VARIANTS)
def test_parameters_are_those_of_transformers(variant: str) -> None:
    """Name for name, shape for shape, in the order of definition."""
    config = BASE | VARIANTS[variant]
    ours = parameters_of(config)
    unknown = {"nemotron_h": {"num_hidden_layers"},
               **dict.fromkeys(("mamba", "mamba2"), {"num_attention_heads", "num_key_value_heads"})}
    config = {name: value for name, value in config.items() if name not in unknown.get(variant, ())}
    assert ours == [(name, tuple(p.shape)) for name, p in real_model(config).named_parameters()]


@pytest.mark.parametrize("name", TINY)
def test_tiny_steps(name: str) -> None:
    assert differences(TINY[name]) == {}


@pytest.mark.parametrize("name", TINY)
def test_every_allocation(name: str) -> None:
    for phase, (ours, want) in events_by_phase(TINY[name]).items():
        assert ours == want, phase


@pytest.mark.parametrize("variant", ["qwen3_next", "qwen3_5", "mamba", "mamba2", "jamba", "nemotron_h"])
def test_states_have_one_size_whatever_the_prompt(variant: str) -> None:
    model = from_config(BASE | VARIANTS[variant])
    sizes = []
    for tokens in (16, 96):
        ledger = estimate(model, run="inference", sequence=tokens, precision="bf16")
        sizes.append({line.name: line.bytes for line in ledger.lines
                      if line.kind == "kv_cache" and "cached" not in line.name})
    assert sizes[0] == sizes[1] and sizes[0]


def test_latents_are_what_deepseek_caches() -> None:
    ledger = estimate(from_config(BASE | VARIANTS["deepseek_v3"]), run="inference", sequence=16, generate=1)
    assert {line.name.rpartition("/")[2] for line in ledger.lines if line.kind == "kv_cache"} == {
        "cached keys", "cached values"}
