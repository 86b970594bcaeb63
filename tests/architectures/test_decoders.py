"""Mistral, Qwen2, Qwen3, Phi-3, Gemma 1 to 3: parameters of the real models, reference steps to the byte."""

from __future__ import annotations

import json
from math import prod
from typing import Any

import pytest

from peakmem.architectures import code_of
from peakmem.architectures.definition import Row
from peakmem.estimate.interpret import interpret
from peakmem.estimate.layout import Dims, dims
from peakmem.estimate.replay import compiled, replay, value
from peakmem.estimate.settings import structure_of
from peakmem.readers.hf_config import from_config
from peakmem.setup import Setup
from tests.reference_steps import DATA, differences, events_by_phase, ids_of, records

FAMILIES = ("mistral", "qwen2", "qwen3", "phi3", "gemma", "gemma2", "gemma3_text")

# Tiny models with every size different, traced in the same way as traced_steps.json.
TINY = {record["id"]: record for record in json.loads((DATA / "traced_decoders.json").read_text())}

SIZES = {
    "hidden_size": 40, "intermediate_size": 56, "num_hidden_layers": 5, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 97, "max_position_embeddings": 64, "pad_token_id": 0,
}
LONGROPE = {
    "rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 32,
    "short_factor": [1.0] * 4, "long_factor": [2.0] * 4, "partial_rotary_factor": 0.8,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "mistral": {"model_type": "mistral", "sliding_window": 8},
    "mistral, tied, own head size": {"model_type": "mistral", "head_dim": 14, "tie_word_embeddings": True},
    "qwen2": {"model_type": "qwen2"},
    "qwen2, windows": {
        "model_type": "qwen2", "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2,
    },
    "qwen3": {"model_type": "qwen3", "head_dim": 14},
    "qwen3, biases": {"model_type": "qwen3", "head_dim": 14, "attention_bias": True},
    "phi3": {"model_type": "phi3"},
    "phi3, longrope": {"model_type": "phi3", "rope_parameters": LONGROPE},
    "gemma": {"model_type": "gemma", "head_dim": 14},
    "gemma, one head of keys, untied": {
        "model_type": "gemma", "head_dim": 14, "num_key_value_heads": 1, "tie_word_embeddings": False,
    },
    "gemma2": {"model_type": "gemma2", "head_dim": 14},
    "gemma2, biases": {"model_type": "gemma2", "head_dim": 14, "attention_bias": True},
    "gemma3_text": {"model_type": "gemma3_text", "head_dim": 14},
    "gemma3_text, period of two": {"model_type": "gemma3_text", "head_dim": 14, "sliding_window_pattern": 2},
    "gemma3_text, all full": {
        "model_type": "gemma3_text", "head_dim": 14, "layer_types": ["full_attention"] * 5,
    },
}


def real_model(config: dict[str, Any]) -> Any:
    """transformers' own model, without memory."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**config))


def sides(shape: Dims, numbers: dict[str, Any]) -> tuple[int, ...]:
    return tuple(prod(value(letter.rstrip("'"), numbers) for letter in group) for group in shape)


@pytest.mark.parametrize("variant", VARIANTS)
def test_parameters_are_those_of_transformers(variant: str) -> None:
    """Name for name, shape for shape, in the order of definition."""
    config = SIZES | VARIANTS[variant]
    structure, numbers = structure_of(from_config(config), Setup.of(sequence=16), unfold=True)
    ours = []
    for key, p in interpret(structure).parameters.items():
        layer = key.partition(".")[0] if p.full_name != key else ""
        ours.append((p.full_name.replace("*", layer), sides(p.dims, numbers)))
    assert ours == [(name, tuple(p.shape)) for name, p in real_model(config).named_parameters()]


@pytest.mark.parametrize("variant", VARIANTS)
def test_buffers_are_those_of_transformers(variant: str) -> None:
    """The long frequencies of longrope, made in the first step, are an attribute and no buffer there."""
    config = SIZES | VARIANTS[variant]
    structure, numbers = structure_of(from_config(config), Setup.of(sequence=16))
    rows = [row for row in code_of(structure.architecture).define(structure) if isinstance(row, Row)]
    ours = {row.name: sides(dims(row.shape), numbers) for row in rows if row.module == "buffer"}
    if structure.has("longrope"):
        assert ours.pop("model.rotary_emb.long_inv_freq") == ours["model.rotary_emb.inv_freq"]
    assert ours == {name: tuple(b.shape) for name, b in real_model(config).named_buffers()}


@pytest.mark.parametrize("name", ids_of(*FAMILIES))
def test_reference_steps(name: str) -> None:
    assert differences(records()[name]) == {}


@pytest.mark.parametrize("name", TINY)
def test_tiny_steps(name: str) -> None:
    assert differences(TINY[name]) == {}


@pytest.mark.parametrize("name", [*TINY, "tiny-gemma2/bf16/eager/b2s80"])
def test_every_allocation(name: str) -> None:
    for phase, (ours, want) in events_by_phase(TINY.get(name) or records()[name]).items():
        assert ours == want, phase


def test_a_window_as_long_as_the_sequence_hides_tokens() -> None:
    """masking_utils.py makes a mask from there on, and the attention kernel changes with it."""
    model = from_config(SIZES | {"model_type": "mistral", "sliding_window": 16, "head_dim": 16})
    setups = [Setup.of(sequence=s, precision="bf16") for s in (15, 16)]
    assert [structure_of(model, setup)[0].kernel("sliding") for setup in setups] == ["flash", "efficient"]


@pytest.mark.parametrize("layers", [4, 6, 13, 26])
def test_folded_periods_are_the_unfolded_layers(layers: int) -> None:
    """Gemma 3: five sliding layers and a full one, as often as they fit, and a rest."""
    model = from_config(SIZES | {"model_type": "gemma3_text", "head_dim": 16, "num_hidden_layers": layers,
                                 "sliding_window": 8, "layer_types": None})
    levels = []
    for unfold in (False, True):
        structure, numbers = structure_of(model, Setup.of(sequence=16, precision="bf16"), unfold=unfold)
        levels.append(replay(compiled(interpret(structure)), numbers))
    assert levels[0] == levels[1]
