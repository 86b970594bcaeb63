"""The books balance: after a step only what was there before it lives, for every architecture and pair of levers.

And folded layers say what unfolded ones do.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from peakmem.errors import PeakmemError
from peakmem.estimate.account import detail_of
from peakmem.estimate.balance import booked
from peakmem.estimate.interpret import interpret
from peakmem.estimate.replay import compiled, replay
from peakmem.estimate.settings import structure_of
from peakmem.estimate.tape import Tape
from peakmem.model import Model
from peakmem.readers.hf_config import from_config
from peakmem.setup import Setup

SIZES: dict[str, Any] = {
    "hidden_size": 40, "intermediate_size": 56, "num_hidden_layers": 5, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 97, "max_position_embeddings": 64, "pad_token_id": 0,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {}, "mistral": {"sliding_window": 8}, "qwen2": {}, "qwen3": {"head_dim": 12}, "phi3": {},
    "gemma": {"head_dim": 12}, "gemma2": {"head_dim": 12}, "gemma3_text": {"head_dim": 12},
    "gpt2": {"n_embd": 40, "n_layer": 5, "n_head": 4, "n_positions": 64}, "gpt_neox": {}, "opt": {"ffn_dim": 56},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen3_moe": {"head_dim": 12, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24},
    "olmo2": {}, "stablelm": {"partial_rotary_factor": 0.4, "qk_layernorm": True},
    "falcon": {"new_decoder_architecture": True, "num_kv_heads": 2}, "bloom": {"n_layer": 5, "n_head": 4},
    "mpt": {"d_model": 40, "n_layers": 5, "n_heads": 4, "max_seq_len": 64}, "phi": {"partial_rotary_factor": 0.4},
    "cohere": {"use_qk_norm": True}, "starcoder2": {"sliding_window": 8},
    "gpt_bigcode": {"n_embd": 40, "n_layer": 5, "n_head": 4, "n_positions": 64},
    "gptj": {"n_embd": 40, "n_layer": 5, "n_head": 4, "n_positions": 64, "rotary_dim": 4},
    "bert": {}, "vit": {"image_size": 16, "patch_size": 4},
}
LAST_IS_KEPT: dict[str, dict[str, Any]] = {
    "mamba": {"state_size": 4, "residual_in_fp32": True},
    "convnext": {"num_stages": 4, "num_hidden_layers": 4, "depths": [2, 4, 3, 2], "hidden_sizes": [8, 16, 24, 40],
                 "image_size": 64},
}
LEVERS: dict[str, dict[str, Any]] = {
    "checkpoint": {"checkpoint": "full"},
    "selective": {"checkpoint": "selective", "checkpoint_save": ("attention", "mm")},
    "lora": {"lora_rank": 4},
    "accumulation": {"accumulation": 3},
    "autocast": {"precision": "amp-bf16"},
    "bf16": {"precision": "bf16"},
    "eager": {"attention": "eager"},
    "8 bit": {"optimizer": "adamw-8bit"},
    "sum": {"loss": "sum"},
    "frozen": {"freeze": "embed"},
    "zero2": {"shard": "zero2", "gpus": 4},
    "fsdp2": {"shard": "fsdp2", "gpus": 4},
    "offload": {"offload": "optimizer"},
}


def model_of(family: str) -> Model:
    """A tiny model with sizes that differ from each other."""
    return from_config({**SIZES, "model_type": family, **(FAMILIES | LAST_IS_KEPT)[family]})


def run(model: Model, settings: dict[str, Any], unfold: bool = False) -> tuple[Tape, dict[str, Any]]:
    structure, numbers = structure_of(model, Setup.of(**{"sequence": 16, "batch": 2} | settings), unfold)
    return interpret(structure), replay(compiled(interpret(structure)), numbers)


def check(model: Model, settings: dict[str, Any]) -> None:
    """One run, folded and unfolded. What the settings refuse in words is no run."""
    try:
        tape, levels = run(model, settings)
    except PeakmemError as error:
        assert len(str(error).splitlines()) == 1
        return
    assert levels["clear"].end == levels["start"].end
    assert levels == run(model, settings, unfold=True)[1]
    ways = Setup.of(**{"sequence": 16, "batch": 2} | settings)
    folded, apart = (detail_of(interpret(booked(structure, numbers)), numbers, model.layers, "")
                     for structure, numbers in (structure_of(model, ways, unfold) for unfold in (False, True)))
    assert all(amount >= 0 for row in folded.chart for by in (row.by_kind, row.peak_by_kind) for amount in by.values())
    assert folded.chart == apart.chart
    assert folded.peak.by_kind == apart.peak.by_kind
    assert {kind: top.largest for kind, top in folded.kinds.items()} == {
        kind: top.largest for kind, top in apart.kinds.items()}
    born = sum(1 for event in tape.events if isinstance(event, int) and event >= 0)
    freed = sum(1 for event in tape.events if isinstance(event, int) and event < 0)
    start = next(i for i, event in enumerate(tape.events) if getattr(event, "name", "").startswith("forward"))
    assert born - freed == sum(1 if event >= 0 else -1 for event in tape.events[:start] if isinstance(event, int))


@pytest.mark.parametrize("family", FAMILIES | LAST_IS_KEPT)
def test_books_balance_with_every_lever(family: str) -> None:
    model = model_of(family)
    for settings in ({}, *LEVERS.values()):
        check(model, settings)


@pytest.mark.parametrize("pair", list(combinations(LEVERS, 2)), ids=" × ".join)
def test_books_balance_with_every_pair_of_levers(pair: tuple[str, str]) -> None:
    one, other = (LEVERS[name] for name in pair)
    if set(one) & set(other):
        return
    for family in ("llama", "gpt2", "gemma3_text", "qwen3_moe"):
        check(model_of(family), one | other)
