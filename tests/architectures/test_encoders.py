"""Encoders of text and of pictures: parameters, traced steps and forward passes of the real models."""

from __future__ import annotations

import json
from typing import Any

import pytest

from peakmem import estimate
from peakmem.errors import Impossible
from peakmem.estimate.interpret import interpret
from peakmem.estimate.settings import structure_of
from peakmem.readers.hf_config import CLASSES, from_config
from peakmem.setup import Setup
from tests.architectures.test_decoders import sides
from tests.generations import compared
from tests.reference_steps import DATA, differences, events_by_phase

RECORDS = [record for name in ("encoders", "deberta")
           for record in json.loads((DATA / f"traced_{name}.json").read_text())]
TINY = {record["id"]: record for record in RECORDS if "bytes" in record}
FORWARD = {record["id"]: record for record in RECORDS if "generate" in record}

BASE = {"hidden_size": 48, "intermediate_size": 56, "num_hidden_layers": 3, "num_attention_heads": 6,
        "vocab_size": 97, "max_position_embeddings": 64, "pad_token_id": 0}
DISTILBERT = {"model_type": "distilbert", "dim": 48, "hidden_dim": 56, "n_layers": 3, "n_heads": 6, "vocab_size": 97,
              "max_position_embeddings": 64}
PICTURES = {"model_type": "dinov2", "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6,
            "image_size": 40, "patch_size": 8}
DEBERTA = BASE | {"model_type": "deberta-v2"}
DEBERTA_V3 = DEBERTA | {"relative_attention": True, "position_buckets": 20, "norm_rel_ebd": "layer_norm",
                        "share_att_key": True, "pos_att_type": "p2c|c2p", "position_biased_input": False}
VARIANTS: dict[str, dict[str, Any]] = {
    "deberta": DEBERTA,
    "deberta v3": DEBERTA_V3,
    "deberta, projections of positions": DEBERTA | {
        "relative_attention": True, "pos_att_type": ["c2p", "p2c"], "type_vocab_size": 2, "embedding_size": 20,
        "tie_word_embeddings": False},
    "distilbert": DISTILBERT,
    "distilbert, untied": DISTILBERT | {"dropout": 0.0, "tie_word_embeddings": False},
    "electra": BASE | {"model_type": "electra", "embedding_size": 20},
    "electra, as wide": BASE | {"model_type": "electra", "embedding_size": 48, "tie_word_embeddings": False},
    "modernbert": BASE | {"model_type": "modernbert", "num_hidden_layers": 6, "local_attention": 20,
                          "attention_dropout": 0.1},
    "modernbert, biases": BASE | {
        "model_type": "modernbert", "num_hidden_layers": 5, "global_attn_every_n_layers": 2, "norm_bias": True,
        "attention_bias": True, "mlp_bias": True, "classifier_bias": True, "decoder_bias": False, "mlp_dropout": 0.1,
        "embedding_dropout": 0.1, "tie_word_embeddings": False},
    "dinov2": PICTURES,
    "dinov2, gated": PICTURES | {"use_swiglu_ffn": True, "use_mask_token": False, "qkv_bias": False, "mlp_ratio": 3,
                                 "hidden_dropout_prob": 0.1},
    "mpnet": BASE | {"model_type": "mpnet"},
    "mpnet, untied": BASE | {"model_type": "mpnet", "tie_word_embeddings": False, "hidden_dropout_prob": 0.0},
}


def real_parameters(cls: str, config: dict[str, Any]) -> list[tuple[str, tuple[int, ...]]]:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    given = {name: value for name, value in config.items() if name != "model_type"}
    with torch.device("meta"):
        real = getattr(transformers, cls)(transformers.AutoConfig.for_model(config["model_type"], **given))
    return [(name, tuple(p.shape)) for name, p in real.named_parameters()]


def our_parameters(config: dict[str, Any], run: str = "training") -> list[tuple[str, tuple[int, ...]]]:
    structure, numbers = structure_of(from_config(config), Setup.of(sequence=16, run=run), unfold=True)
    ours = []
    for key, p in interpret(structure).parameters.items():
        layer = key.partition(".")[0] if p.full_name != key else ""
        ours.append((p.full_name.replace("*", layer), sides(p.dims, numbers)))
    return ours


@pytest.mark.parametrize("variant", VARIANTS)
def test_parameters_are_those_of_transformers(variant: str) -> None:
    config = VARIANTS[variant]
    assert our_parameters(config) == real_parameters(CLASSES[config["model_type"]], config)


@pytest.mark.parametrize("kind", ["dinov2", "distilbert", "electra", "modernbert", "mpnet"])
def test_the_encoder_alone_is_what_runs_in_inference(kind: str) -> None:
    name = CLASSES[kind].replace("ForMaskedLM", "Model").replace("ForImageClassification", "Model")
    config = VARIANTS[kind] | {"architectures": [name]}
    ours = [(parameter.partition(".")[2], shape) for parameter, shape in our_parameters(config, "inference")]
    assert ours == real_parameters(name, VARIANTS[kind])
    assert our_parameters(config) == our_parameters(VARIANTS[kind])
    assert any("is the class itself" in note for note in from_config(config).notes)


@pytest.mark.parametrize("name", TINY)
def test_tiny_steps(name: str) -> None:
    assert differences(TINY[name]) == {}


@pytest.mark.parametrize("name", TINY)
def test_every_allocation(name: str) -> None:
    for phase, (ours, want) in events_by_phase(TINY[name]).items():
        assert ours == want, phase


@pytest.mark.parametrize("name", FORWARD)
def test_the_forward_pass_is_the_real_model_s(name: str) -> None:
    for phase, (ours, want) in compared(FORWARD[name]).items():
        assert ours == want, phase


def test_every_variant_is_traced() -> None:
    for records in (TINY, FORWARD):
        assert {name.partition("/")[0] for name in records} == set(VARIANTS)


def test_what_peakmem_does_not_know_is_refused() -> None:
    with pytest.raises(Impossible, match="sinusoidal_pos_embds"):
        from_config(DISTILBERT | {"sinusoidal_pos_embds": True})
    with pytest.raises(Impossible, match="does not support it"):
        structure_of(from_config(VARIANTS["mpnet"]), Setup.of(checkpoint="full", sequence=16))


@pytest.mark.parametrize("kind", ["xlm-roberta", "camembert", "distilbert"])
def test_a_trace_builds_the_class_with_the_masked_head(kind: str) -> None:
    pytest.importorskip("torch")
    from peakmem.trace.settings import task_of

    assert task_of(from_config({"model_type": kind}), Setup.of(sequence=16)) == "mlm"


@pytest.mark.parametrize(("change", "words"), [
    ({"legacy": False}, "legacy"), ({"conv_kernel_size": 3}, "convolution"), ({"pos_att_type": None}, "pos_att_type"),
    ({"attention_head_size": 12}, "attention_head_size"),
])
def test_a_deberta_of_another_kind_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(Impossible, match=words):
        from_config(DEBERTA_V3 | change)


def test_the_table_of_distances_has_two_rows_for_each_bucket_or_distance() -> None:
    rows = [from_config(DEBERTA_V3 | change).sizes["R"]
            for change in ({}, {"position_buckets": -1}, {"position_buckets": 0, "max_relative_positions": 11})]
    assert rows == [40, 128, 22]


def test_all_hidden_states_of_deberta_live_until_the_model_returns() -> None:
    """Without dropout and under autocast nothing else holds them, in however many layers."""
    held = {}
    for layers in (3, 9):
        config = DEBERTA | {"num_hidden_layers": layers}
        phases = estimate(from_config(config), precision="amp-bf16", dropout=0, batch=2, sequence=20).phases
        held[layers] = phases["step_end"] - phases["step_start"]
    assert held[3] == held[9]


def test_a_long_sequence_makes_no_more_positions_where_none_are_added() -> None:
    config = DEBERTA_V3 | {"max_position_embeddings": 100}
    rows = [line.bytes for line in estimate(from_config(config), sequence=200).lines if "position_ids" in line.name]
    assert rows == [1024]


def test_a_size_of_deberta_that_follows_from_others_is_not_called_a_default() -> None:
    assert not any("attention_head_size" in note or "embedding_size" in note for note in from_config(DEBERTA_V3).notes)
