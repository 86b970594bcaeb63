"""RoBERTa, and models with an encoder and a decoder, against the real models: parameters, traced steps."""

from __future__ import annotations

import json
from math import prod
from typing import Any

import pytest

from peakmem import estimate
from peakmem.errors import Impossible, Unreadable
from peakmem.estimate.interpret import interpret
from peakmem.estimate.layout import Dims
from peakmem.estimate.replay import value
from peakmem.estimate.settings import structure_of
from peakmem.readers.hf_config import CLASSES, from_config
from peakmem.setup import Setup
from tests.reference_steps import DATA, differences, events_by_phase, ids_of, records

FAMILIES = ("roberta", "t5", "whisper")
TINY = {record["id"]: record for record in json.loads((DATA / "traced_encoder_decoders.json").read_text())}

T5 = {"model_type": "t5", "d_model": 48, "d_kv": 10, "d_ff": 56, "num_layers": 3, "num_decoder_layers": 2,
      "num_heads": 4, "vocab_size": 97, "relative_attention_num_buckets": 12, "decoder_start_token_id": 0}
ROBERTA = {"model_type": "roberta", "hidden_size": 48, "intermediate_size": 56, "num_hidden_layers": 3,
           "num_attention_heads": 6, "vocab_size": 97, "max_position_embeddings": 40}
WHISPER = {"model_type": "whisper", "d_model": 48, "encoder_layers": 3, "decoder_layers": 2, "encoder_ffn_dim": 56,
           "encoder_attention_heads": 6, "decoder_attention_heads": 6, "decoder_ffn_dim": 56, "vocab_size": 97,
           "num_mel_bins": 12, "max_source_positions": 20, "max_target_positions": 30, "pad_token_id": 0}
VARIANTS: dict[str, dict[str, Any]] = {
    "whisper": WHISPER,
    "whisper, untied": WHISPER | {"tie_word_embeddings": False},
    "roberta": ROBERTA,
    "roberta, untied": ROBERTA | {"tie_word_embeddings": False},
    "t5": T5,
    "t5 1.1": T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "mt5": T5 | {"model_type": "mt5", "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "t5, as many layers": T5 | {"num_decoder_layers": None},
}


def real_model(config: dict[str, Any]) -> Any:
    """transformers' own model, without memory."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    with torch.device("meta"):
        return getattr(transformers, CLASSES[config["model_type"]])(transformers.AutoConfig.for_model(**config))


def sides(shape: Dims, numbers: dict[str, Any]) -> tuple[int, ...]:
    return tuple(prod(value(letter.rstrip("'"), numbers) for letter in group) for group in shape)


@pytest.mark.parametrize("variant", VARIANTS)
def test_parameters_are_those_of_transformers(variant: str) -> None:
    """Name for name, shape for shape, in the order of definition."""
    structure, numbers = structure_of(from_config(VARIANTS[variant]), Setup.of(sequence=16), unfold=True)
    ours: list[tuple[str, tuple[int, ...]]] = []
    layers: dict[str, list[str]] = {}  # of each stack, in order
    for key, p in interpret(structure).parameters.items():
        found = layers.setdefault(p.full_name.partition(".*")[0], [])
        found += [] if key.partition(":")[0] in found else [key.partition(":")[0]]
        number = found.index(key.partition(":")[0])
        ours.append((p.full_name.replace("*", str(number)), sides(p.dims, numbers)))
    assert ours == [(name, tuple(p.shape)) for name, p in real_model(VARIANTS[variant]).named_parameters()]


@pytest.mark.parametrize("name", ids_of(*FAMILIES))
def test_reference_steps(name: str) -> None:
    assert differences(records()[name]) == {}


@pytest.mark.parametrize("name", TINY)
def test_tiny_steps(name: str) -> None:
    """Phases of the folded model, and every allocation of the unfolded one."""
    assert differences(TINY[name]) == {}
    for phase, (ours, want) in events_by_phase(TINY[name]).items():
        assert ours == want, phase


def test_every_family_is_traced() -> None:
    assert {record["config"]["model_type"] for record in TINY.values()} == set(FAMILIES)


def test_the_target_is_as_long_as_the_source_unless_it_is_said() -> None:
    model = from_config(T5)
    same = estimate(model, sequence=24, target=24).phases
    assert estimate(model, sequence=24).phases == same
    assert estimate(model, sequence=24, target=8).phases != same


def test_positions_begin_behind_the_padding_tokens_number() -> None:
    model = from_config(ROBERTA)
    assert (model.positions, model.longest) == (40, 38)
    with pytest.raises(Impossible, match="40 positions|38 positions"):
        estimate(model, sequence=39)


def test_a_whisper_of_another_shape_is_refused() -> None:
    for change in ({"encoder_ffn_dim": 40}, {"apply_spec_augment": True}, {"activation_dropout": 0.1}):
        with pytest.raises(Impossible):
            from_config(WHISPER | change)
    with pytest.raises(Impossible, match="30 positions"):
        estimate(from_config(WHISPER), target=31)


def test_a_feed_forward_of_another_kind_is_refused() -> None:
    with pytest.raises(Unreadable, match="gated-"):
        from_config(T5 | {"feed_forward_proj": "glu-relu"})
