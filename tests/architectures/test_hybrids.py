"""Granite 4, Bamba, Falcon-H1, Falcon-Mamba, Zamba2, LFM2: parameters, traced steps, states, what files may say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from peakmem import estimate
from peakmem.errors import Impossible, Unreadable
from peakmem.readers.hf_config import from_config
from peakmem.tables.resize import resize
from tests.architectures.test_decoders import real_model
from tests.architectures.test_recent import parameters_of
from tests.reference_steps import DATA, differences, events_by_phase

TINY = {record["id"]: record for record in json.loads((DATA / "traced_hybrids.json").read_text())}

BASE: dict[str, Any] = {"hidden_size": 40, "intermediate_size": 56, "num_hidden_layers": 4, "vocab_size": 97,
                        "num_attention_heads": 4, "num_key_value_heads": 2, "pad_token_id": 0}
MAMBA: dict[str, Any] = {"mamba_n_heads": 4, "mamba_d_head": 20, "mamba_n_groups": 2, "mamba_d_state": 6,
                         "mamba_chunk_size": 16}
ZAMBA: dict[str, Any] = {
    "n_mamba_heads": 4, "mamba_ngroups": 2, "mamba_d_state": 6, "chunk_size": 16, "adapter_rank": 7,
    "num_hidden_layers": 7, "layers_block_type": ["mamba", "hybrid", "hybrid", "mamba", "hybrid", "hybrid", "mamba"]}
MIXED = ["mamba", "attention", "linear_attention", "full_attention"]
CONV = ["conv", "full_attention", "conv", "attention"]
VARIANTS: dict[str, dict[str, Any]] = {
    "granite 4": {"model_type": "granitemoehybrid", **MAMBA, "num_local_experts": 4, "layers_block_type": MIXED,
                  "shared_intermediate_size": 28, "mamba_proj_bias": True},
    "granite 4, dense": {"model_type": "granitemoehybrid", **MAMBA, "num_local_experts": 0, "num_experts_per_tok": 0,
                         "layer_types": MIXED, "shared_intermediate_size": 28, "mamba_conv_bias": False},
    "granite 4, attention alone": {"model_type": "granitemoehybrid", "mamba_n_heads": 4, "num_local_experts": 4,
                                   "shared_intermediate_size": 28, "layer_types": ["attention"] * 4,
                                   "position_embedding_type": "rope", "attention_bias": True},
    "bamba": {"model_type": "bamba", **MAMBA, "attn_layer_indices": [1, 2], "mlp_bias": True, "attention_bias": True},
    "falcon_h1": {"model_type": "falcon_h1", **MAMBA, "mamba_d_ssm": 80, "attention_bias": True, "mlp_bias": True},
    "falcon_h1, norms": {"model_type": "falcon_h1", **MAMBA, "mamba_d_ssm": None, "mamba_rms_norm": True,
                         "projectors_bias": True},
    "falcon_mamba": {"model_type": "falcon_mamba", "state_size": 6, "use_bias": True, "expand": 16,
                     "intermediate_size": 72},
    "zamba2": {"model_type": "zamba2", **ZAMBA},
    "zamba2, adapters": {"model_type": "zamba2", **ZAMBA, "num_mem_blocks": 2, "use_shared_attention_adapter": True,
                         "use_mem_rope": True, "add_bias_linear": True, "num_key_value_heads": 4},
    "lfm2": {"model_type": "lfm2", "full_attn_idxs": [1, 3], "block_multiple_of": 8, "conv_bias": True},
    "lfm2, older names": {"model_type": "lfm2", "layer_types": CONV, "block_ff_dim": 100, "block_multiple_of": 16,
                          "block_ffn_dim_multiplier": 1.3, "tie_embedding": False},
    "lfm2_moe": {"model_type": "lfm2_moe", "layer_types": CONV, "num_experts": 4, "num_dense_layers": 1,
                 "num_experts_per_tok": 2, "moe_intermediate_size": 24},
}
SPEAKS_OF_NO_HEADS = ("falcon_mamba",)


@pytest.mark.parametrize("variant", VARIANTS)
def test_parameters_are_those_of_transformers(variant: str) -> None:
    """Name for name, shape for shape, in the order of definition."""
    config = BASE | VARIANTS[variant]
    absent = {"num_attention_heads", "num_key_value_heads"} if variant in SPEAKS_OF_NO_HEADS else set()
    real = real_model({name: value for name, value in config.items() if name not in absent})
    assert parameters_of(config) == [(name, tuple(p.shape)) for name, p in real.named_parameters()]


@pytest.mark.parametrize("name", TINY)
def test_tiny_steps(name: str) -> None:
    assert differences(TINY[name]) == {}


@pytest.mark.parametrize("name", TINY)
def test_every_allocation(name: str) -> None:
    for phase, (ours, want) in events_by_phase(TINY[name]).items():
        assert ours == want, phase


@pytest.mark.parametrize("variant", sorted(VARIANTS.keys() - {"granite 4, attention alone"}))
def test_states_have_one_size_whatever_the_prompt(variant: str) -> None:
    model = from_config(BASE | VARIANTS[variant])
    sizes, cached = [], []
    for tokens in (16, 96):
        ledger = estimate(model, run="inference", sequence=tokens, precision="bf16")
        kept = {line.name: line.bytes for line in ledger.lines if line.kind == "kv_cache"}
        sizes.append({name: size for name, size in kept.items() if "cached" not in name})
        cached.append(sum(size for name, size in kept.items() if "cached" in name))
    assert sizes[0] == sizes[1] and sizes[0]
    assert (cached[0] < cached[1]) == (model.architecture != "falcon_mamba")


@pytest.mark.parametrize("variant", ["granite 4", "lfm2", "falcon_h1"])
def test_chunks_of_a_prompt_are_refused_where_states_would_be_carried(variant: str) -> None:
    with pytest.raises(Impossible, match="carries its states"):
        estimate(from_config(BASE | VARIANTS[variant]), run="inference", sequence=32, prefill_chunk=16)


@pytest.mark.parametrize("variant", ["falcon_h1", "falcon_mamba"])
def test_adapters_where_peft_refuses_them(variant: str) -> None:
    model = from_config(BASE | VARIANTS[variant])
    with pytest.raises(Impossible, match="out_proj"):
        estimate(model, sequence=8, lora_rank=4)
    assert estimate(model, sequence=8, lora_rank=4, lora_targets=("in_proj",)).parameters.trained


@pytest.mark.parametrize(("variant", "changes", "words"), [
    ("granite 4", {"mamba_d_head": 16}, "mamba_expand 2 .* times hidden_size 40 must be mamba_n_heads 4"),
    ("granite 4", {"mamba_n_groups": 3}, "mamba_n_groups 3 must divide"),
    ("granite 4", {"layers_block_type": MIXED[:3]}, "layer_types has 3 entries"),
    ("granite 4", {"layers_block_type": [*MIXED[:3], "sliding_attention"]}, "known: linear_attention, mamba"),
    ("granite 4", {"time_step_limit": None}, "time_step_limit"),
    ("granite 4, dense", {"output_router_logits": True}, "there is no router"),
    ("bamba", {"z_loss_coefficient": 1e-4}, "adds a term to the loss"),
    ("bamba", {"attn_layer_indices": [1, True]}, "give a list of layer numbers"),
    ("falcon_h1", {"mamba_d_ssm": 90}, "mamba_d_ssm 90 must be mamba_n_heads 4 times mamba_d_head 20"),
    ("zamba2", {"n_mamba_heads": 6}, "must be n_mamba_heads 6 times mamba_headdim 13"),
    ("zamba2", {"attention_head_dim": 10}, "4 times attention_head_dim 10"),
    ("zamba2", {"layers_block_type": None}, "there are 54 layers"),
    ("zamba2, adapters", {"num_key_value_heads": 2}, "adds to keys that are as wide as queries"),
    ("lfm2", {"full_attn_idxs": 3}, "give a list of layer numbers"),
    ("lfm2", {"block_ffn_dim_multiplier": "1"}, "give a number above 0, or null"),
    ("lfm2_moe", {"output_router_logits": True}, "handed out"),
    ("lfm2_moe", {"layer_types": None}, "layer_types"),
])
def test_what_the_classes_or_we_do_not_know_is_refused(variant: str, changes: dict[str, Any], words: str) -> None:
    with pytest.raises((Impossible, Unreadable), match=words):
        from_config(BASE | VARIANTS[variant] | changes)


@pytest.mark.parametrize(("settings", "words"), [
    ({"checkpoint": "full"}, "within their own recomputation"),
    ({"shard": "fsdp2", "gpus": 8}, "which layer of Zamba2 owns"),
    ({"weights": "nf4", "lora_rank": 4, "lora_targets": ("in_proj",)}, "is packed is not known"),
    ({"lora_rank": 4}, "adapters of its own"),
    ({"lora_rank": 4, "lora_targets": ("gate_up_proj",)}, "adapters of its own"),
    ({"tied": "no"}, "then shares no block"),
])
def test_what_shared_blocks_make_of_levers_is_refused(settings: dict[str, Any], words: str) -> None:
    model = from_config(BASE | VARIANTS["zamba2"])
    if "tied" in settings:
        model, settings = resize(model, **settings), {}
    with pytest.raises(Impossible, match=words):
        estimate(model, sequence=16, **settings)


def test_no_layer_of_zamba2_shares_a_block_alone() -> None:
    """Its Mamba layers, and hybrid ones with blocks of their own, take checkpointing and heads of their own or not."""
    alone = BASE | VARIANTS["zamba2"] | {"layers_block_type": ["mamba"] * 7}
    assert estimate(from_config(alone), sequence=16, checkpoint="full").peak.bytes
    apart = BASE | VARIANTS["zamba2"] | {"num_mem_blocks": 4, "tie_word_embeddings": False}
    assert estimate(from_config(apart), sequence=16).peak.bytes


def test_heads_of_zamba2_are_twice_as_wide_as_the_model() -> None:
    model = from_config(BASE | VARIANTS["zamba2"])
    wider = resize(model, hidden=80)
    assert (wider.heads, wider.head_size, wider.sizes["am"]) == (8, 20, 8)
    with pytest.raises(Impossible, match="twice --hidden 40"):
        resize(model, heads=8)


@pytest.mark.parametrize("variant", ["granite 4", "bamba"])
def test_mamba_follows_another_hidden_size(variant: str) -> None:
    """The class wants a whole number of times the hidden size."""
    wider = resize(from_config(BASE | VARIANTS[variant]), hidden=80)
    same = from_config(BASE | VARIANTS[variant] | {"hidden_size": 80, "mamba_n_heads": 8, "num_attention_heads": 8,
                                                   "num_key_value_heads": 4, "intermediate_size": 112})
    assert (wider.sizes, wider.hidden, wider.heads) == (same.sizes, same.hidden, same.heads)
    with pytest.raises(Impossible, match="no size that 4 heads of Mamba follow"):
        resize(from_config(BASE | VARIANTS[variant]), hidden=50, kv_heads=1)


def test_heads_of_an_odd_size_are_for_attention_without_positions() -> None:
    odd = BASE | VARIANTS["granite 4"] | {"num_attention_heads": 8, "num_key_value_heads": 8}
    assert from_config(odd).head_size == 5
    with pytest.raises(Impossible, match="even number"):
        from_config(odd | {"position_embedding_type": "rope"})


@pytest.mark.parametrize("config", [{"model_type": "ernie4_5", "head_dim": 12}, VARIANTS["lfm2"]])
def test_dropout_asked_for_is_not_where_a_class_has_none(config: dict[str, Any]) -> None:
    """Ernie4_5Attention and Lfm2Attention call the kernel with dropout 0.0, whatever the configuration says."""
    model = from_config(BASE | config)
    peaks = [estimate(model, sequence=32, attention="eager", dropout=dropout).peak.bytes for dropout in (0.0, 0.1)]
    assert peaks[0] == peaks[1]
