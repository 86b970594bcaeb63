"""GPT-2, OPT, GPT-NeoX, BERT, ViT: parameters of the real models, reference steps to the byte."""

from __future__ import annotations

import json
from math import prod
from typing import Any

import pytest

from peakmem.errors import Impossible
from peakmem.estimate.interpret import interpret
from peakmem.estimate.replay import value
from peakmem.estimate.settings import structure_of
from peakmem.readers.hf_config import from_config
from peakmem.setup import Setup
from tests.reference_steps import DATA, differences, events_by_phase, ids_of, records

FAMILIES = ("gpt2", "opt", "gpt_neox", "bert", "vit")

# Tiny models with what real ones rarely have, traced in the same way as traced_steps.json.
RARE = {record["id"]: record for record in json.loads((DATA / "traced_classics.json").read_text())}

GPT2 = {"model_type": "gpt2", "n_embd": 24, "n_layer": 3, "n_head": 3, "vocab_size": 97, "n_positions": 40}
OPT = {
    "model_type": "opt", "hidden_size": 24, "ffn_dim": 56, "num_hidden_layers": 3, "num_attention_heads": 3,
    "vocab_size": 97, "max_position_embeddings": 40, "word_embed_proj_dim": 24,
}
NEOX = {
    "model_type": "gpt_neox", "hidden_size": 24, "intermediate_size": 56, "num_hidden_layers": 3,
    "num_attention_heads": 3, "vocab_size": 97,
}
BERT = {
    "model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 24, "intermediate_size": 56,
    "num_hidden_layers": 3, "num_attention_heads": 3, "vocab_size": 97, "max_position_embeddings": 40,
    "type_vocab_size": 2,
}
VIT = {
    "model_type": "vit", "hidden_size": 24, "intermediate_size": 56, "num_hidden_layers": 3,
    "num_attention_heads": 3, "image_size": 20, "patch_size": 4, "num_channels": 2, "num_labels": 7,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "gpt2": GPT2,
    "gpt2 untied, inner size": GPT2 | {"tie_word_embeddings": False, "n_inner": 31},
    "opt": OPT,
    "opt untied": OPT | {"tie_word_embeddings": False},
    "opt narrow embeddings, norms after": OPT | {"word_embed_proj_dim": 10, "do_layer_norm_before": False},
    "opt without final norm": OPT | {"_remove_final_layer_norm": True},
    "opt without biases": OPT | {"enable_bias": False},
    "opt without weights in norms": OPT | {"layer_norm_elementwise_affine": False},
    "gpt_neox": NEOX,
    "gpt_neox tied, serial, no biases": NEOX | {
        "tie_word_embeddings": True, "use_parallel_residual": False, "attention_bias": False,
    },
    "bert": BERT,
    "bert untied": BERT | {"tie_word_embeddings": False},
    "vit": VIT,
    "vit without biases": VIT | {"qkv_bias": False},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_parameters_are_those_of_transformers(variant: str) -> None:
    """Name for name, shape for shape, in the order of definition."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    config = VARIANTS[variant]
    kind = {"bert": "MaskedLM", "vit": "ImageClassification"}.get(config["model_type"], "CausalLM")
    with torch.device("meta"):
        real = getattr(transformers, f"AutoModelFor{kind}").from_config(
            transformers.AutoConfig.for_model(**config)
        )
    want = [(name, tuple(p.shape)) for name, p in real.named_parameters()]
    assert shapes(config) == want


def shapes(config: dict[str, Any]) -> list[tuple[str, tuple[int, ...]]]:
    """Our parameters with their layers' numbers, and their sizes."""
    structure, numbers = structure_of(from_config(config), Setup.of(sequence=16), unfold=True)
    found = []
    for key, p in interpret(structure).parameters.items():
        layer = key.partition(".")[0] if p.full_name != key else ""
        sides = tuple(prod(value(letter, numbers) for letter in group) for group in p.dims)
        found.append((p.full_name.replace("*", layer), sides))
    return found


@pytest.mark.parametrize("name", ids_of(*FAMILIES))
def test_reference_steps(name: str) -> None:
    assert differences(records()[name]) == {}


@pytest.mark.parametrize("name", [name for name in ids_of(*FAMILIES) if "events" in records()[name]])
def test_every_allocation(name: str) -> None:
    for phase, (ours, want) in events_by_phase(records()[name]).items():
        assert ours == want, phase


@pytest.mark.parametrize("name", RARE)
def test_rare_switches(name: str) -> None:
    """Narrow embeddings, norms without weights, one patch, one token, odd rotary sizes, sums for a loss."""
    assert differences(RARE[name]) == {}
    for phase, (ours, want) in events_by_phase(RARE[name]).items():
        assert ours == want, phase


def test_an_odd_rotary_size_is_rounded_up() -> None:
    """A quarter of 20 elements is 5: arange(0, 5, 2) makes three frequencies, which turn 6."""
    config = NEOX | {"hidden_size": 60, "rotary_pct": 0.25}
    assert from_config(config).rotary_size == 6


@pytest.mark.parametrize("config", [BERT, VIT], ids=["bert", "vit"])
def test_losses_of_language_models_are_refused(config: dict[str, Any]) -> None:
    with pytest.raises(Impossible, match="--loss fused"):
        structure_of(from_config(config), Setup.of(loss="fused", sequence=8))
