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
from tests.generations import compared
from tests.reference_steps import DATA, differences, events_by_phase, ids_of, records

FAMILIES = ("roberta", "t5", "whisper")
BARTS = ("bart", "m2m_100", "marian", "mbart", "pegasus")
FORWARD = {record["id"]: record for record in json.loads((DATA / "traced_seq2seq.json").read_text())
           if "generate" in record}
TINY = {record["id"]: record for name in ("encoder_decoders", "seq2seq")
        for record in json.loads((DATA / f"traced_{name}.json").read_text()) if "bytes" in record}

T5 = {"model_type": "t5", "d_model": 48, "d_kv": 10, "d_ff": 56, "num_layers": 3, "num_decoder_layers": 2,
      "num_heads": 4, "vocab_size": 97, "relative_attention_num_buckets": 12, "decoder_start_token_id": 0}
ROBERTA = {"model_type": "roberta", "hidden_size": 48, "intermediate_size": 56, "num_hidden_layers": 3,
           "num_attention_heads": 6, "vocab_size": 97, "max_position_embeddings": 40}
WHISPER = {"model_type": "whisper", "d_model": 48, "encoder_layers": 3, "decoder_layers": 2, "encoder_ffn_dim": 56,
           "encoder_attention_heads": 6, "decoder_attention_heads": 6, "decoder_ffn_dim": 56, "vocab_size": 97,
           "num_mel_bins": 12, "max_source_positions": 20, "max_target_positions": 30, "pad_token_id": 0}
BART = {"d_model": 48, "encoder_layers": 3, "decoder_layers": 2, "encoder_ffn_dim": 56, "encoder_attention_heads": 6,
        "decoder_attention_heads": 6, "decoder_ffn_dim": 56, "vocab_size": 97, "max_position_embeddings": 30,
        "pad_token_id": 1}
VARIANTS: dict[str, dict[str, Any]] = {
    **{name: BART | {"model_type": name} for name in BARTS},
    **{f"{name}, untied": BART | {"model_type": name, "tie_word_embeddings": False} for name in BARTS},
    "whisper": WHISPER,
    "whisper, untied": WHISPER | {"tie_word_embeddings": False},
    "roberta": ROBERTA,
    "roberta, untied": ROBERTA | {"tie_word_embeddings": False},
    "t5": T5,
    "t5 1.1": T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "t5 1.1, saved again": T5 | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": True,
                                 "scale_decoder_outputs": False},
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


@pytest.mark.parametrize("name", FORWARD)
def test_generation(name: str) -> None:
    """Every allocation of the encoder and the first tokens, of the first and of the last single token."""
    for phase, (ours, want) in compared(FORWARD[name]).items():
        assert ours == want, phase


def test_every_family_is_traced() -> None:
    assert {record["config"]["model_type"] for record in TINY.values()} == {*FAMILIES, *BARTS}


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
    for change in ({"encoder_ffn_dim": 40}, {"apply_spec_augment": True}):
        with pytest.raises(Impossible):
            from_config(WHISPER | change)
    with pytest.raises(Impossible, match="30 positions"):
        estimate(from_config(WHISPER), target=31)


def test_dropout_inside_the_feed_forward_is_one_of_its_own() -> None:
    masks = [line for line in estimate(from_config(WHISPER | {"activation_dropout": 0.1, "dropout": 0.0})).lines
             if "mask" in line.name and "self_attn" not in line.name and "encoder_attn" not in line.name]
    assert {line.name.partition(".layers")[0] for line in masks} == {"model.encoder", "model.decoder"}


def test_two_vocabularies_are_refused() -> None:
    marian = BART | {"model_type": "marian"}
    for change in ({"share_encoder_decoder_embeddings": False}, {"decoder_vocab_size": 50}):
        with pytest.raises(Impossible, match="embeddings"):
            from_config(marian | change)
    assert from_config(marian | {"decoder_vocab_size": 97}).vocabulary == 97


def test_neither_sequence_is_longer_than_the_positions() -> None:
    for name in BARTS:
        model = from_config(BART | {"model_type": name})
        assert estimate(model, sequence=30, target=30).phases
        for lengths in ({"sequence": 20, "target": 31}, {"sequence": 31, "target": 20}):
            with pytest.raises(Impossible, match="30 positions"):
                estimate(model, **lengths)
    assert estimate(from_config(WHISPER), sequence=4000, target=30).phases  # its source is always of one length


def test_a_feed_forward_of_another_kind_is_refused() -> None:
    with pytest.raises(Unreadable, match="gated-"):
        from_config(T5 | {"feed_forward_proj": "glu-relu"})
