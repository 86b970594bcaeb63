"""Models of several towers, and ResNet, against the real models: parameters by name and shape, traced steps."""

from __future__ import annotations

import json
from math import prod
from typing import Any

import pytest

from peakmem.errors import Impossible, PeakmemError, Unreadable
from peakmem.estimate.interpret import interpret
from peakmem.estimate.layout import Dims
from peakmem.estimate.replay import compiled, replay, value
from peakmem.estimate.settings import structure_of
from peakmem.readers.hf_config import CLASSES, from_config
from peakmem.setup import Setup
from tests.reference_steps import DATA, differences, events_by_phase

FAMILIES = ("clip", "llava", "resnet", "siglip")
TINY = {record["id"]: record for name in ("towers", "pairs")
        for record in json.loads((DATA / f"traced_{name}.json").read_text())}

CLIP = {
    "model_type": "clip", "projection_dim": 24,
    "text_config": {"hidden_size": 48, "intermediate_size": 56, "num_hidden_layers": 3, "num_attention_heads": 6,
                    "vocab_size": 97, "max_position_embeddings": 20},
    "vision_config": {"hidden_size": 40, "intermediate_size": 44, "num_hidden_layers": 2, "num_attention_heads": 4,
                      "image_size": 32, "patch_size": 8},
}
SIGLIP = {"model_type": "siglip",
          "text_config": CLIP["text_config"] | {"projection_size": 40},
          "vision_config": CLIP["vision_config"] | {"num_attention_heads": 5}}
TEXT = {"hidden_size": 48, "intermediate_size": 56, "num_hidden_layers": 3, "num_attention_heads": 6,
        "num_key_value_heads": 2, "vocab_size": 97, "head_dim": 8}
LLAVA = {"model_type": "llava", "image_token_index": 96, "text_config": TEXT | {"model_type": "llama"},
         "vision_config": CLIP["vision_config"] | {"model_type": "clip_vision_model"}}
TOWER = {"depth": 2, "hidden_size": 32, "intermediate_size": 44, "num_heads": 4, "patch_size": 7,
         "spatial_merge_size": 3, "temporal_patch_size": 2, "out_hidden_size": 48}
DEEP = TOWER | {"num_position_embeddings": 25, "deepstack_visual_indexes": [0, 1]}
QWEN = {"model_type": "qwen3_vl", "text_config": TEXT, "vision_config": DEEP}
EXPERTS = {"moe_intermediate_size": 20, "num_experts": 4, "num_experts_per_tok": 2}
GEMMA = {"model_type": "gemma3", "image_token_index": 90, "mm_tokens_per_image": 4,
         "text_config": TEXT | {"model_type": "gemma3_text", "num_hidden_layers": 7, "sliding_window": 12},
         "vision_config": CLIP["vision_config"] | {"model_type": "siglip_vision_model", "vision_use_head": False}}
PALIGEMMA = {"model_type": "paligemma", "image_token_index": 90, "projection_dim": 48,
             "text_config": TEXT | {"model_type": "gemma"}, "vision_config": GEMMA["vision_config"]}
RESNET = {"model_type": "resnet", "embedding_size": 12, "hidden_sizes": [20, 24], "depths": [2, 3], "num_labels": 7}
VARIANTS: dict[str, dict[str, Any]] = {
    "clip": CLIP,
    "siglip": SIGLIP,
    "siglip, one width": SIGLIP | {"text_config": CLIP["text_config"] | {"hidden_size": 40, "num_attention_heads": 4}},
    "resnet": RESNET,
    "resnet, basic layers": RESNET | {"layer_type": "basic", "downsample_in_first_stage": True},
    "resnet, no first shortcut": RESNET | {"embedding_size": 20},
    "llava": LLAVA,
    "llava on qwen2, tied": LLAVA | {"text_config": TEXT | {"model_type": "qwen2", "tie_word_embeddings": True}},
    "llava on mistral, class token": LLAVA | {
        "text_config": TEXT | {"model_type": "mistral"}, "vision_feature_select_strategy": "full",
        "vision_feature_layer": -1, "multimodal_projector_bias": False, "projector_hidden_act": "relu"},
    "gemma 3 and tower": GEMMA,
    "paligemma": PALIGEMMA,
    "paligemma 2": PALIGEMMA | {"text_config": TEXT | {"model_type": "gemma2", "sliding_window": 12}},
    "qwen2-vl": {"model_type": "qwen2_vl", "text_config": TEXT, "vision_config": {
        "depth": 2, "embed_dim": 32, "hidden_size": 48, "mlp_ratio": 3, "num_heads": 4, "patch_size": 7}},
    "qwen2.5-vl": {"model_type": "qwen2_5_vl", "text_config": TEXT, "vision_config": TOWER},
    "qwen2.5-vl, an older file": TEXT | {"model_type": "qwen2_5_vl", "vision_config": TOWER},
    "qwen3-vl": QWEN,
    "qwen3-vl, tied, biases": QWEN | {"tie_word_embeddings": True, "text_config": TEXT | {"attention_bias": True}},
    "qwen3-vl-moe": {"model_type": "qwen3_vl_moe", "text_config": TEXT | EXPERTS, "vision_config": DEEP},
}
GENERATES = [name for name in VARIANTS if not name.startswith(("clip", "siglip", "resnet"))]
TRAINS = [name for name in VARIANTS if not name.startswith("qwen")]  # those with pictures: test_vision_language.py


def setup_of(variant: str, **settings: Any) -> Setup:
    return Setup.of(sequence=24 if "llava" in variant else 16,
                    run="inference" if variant in GENERATES else "training", **settings)


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
    structure, numbers = structure_of(from_config(VARIANTS[variant]), setup_of(variant), unfold=True)
    ours: list[tuple[str, tuple[int, ...]]] = []
    layers: dict[str, list[str]] = {}  # of each stack, in order
    for key, p in interpret(structure).parameters.items():
        found = layers.setdefault(p.full_name.partition(".*")[0], [])
        found += [] if key.partition(":")[0] in found else [key.partition(":")[0]]
        number = found.index(key.partition(":")[0])
        ours.append((p.full_name.replace("*", str(number)), sides(p.dims, numbers)))
    assert ours == [(name, tuple(p.shape)) for name, p in real_model(VARIANTS[variant]).named_parameters()]


@pytest.mark.parametrize(("change", "words"), [
    ({"text_config": {"hidden_size": 48}}, "captions end as 48 numbers, pictures as 40"),
    ({"vision_config": {"vision_use_head": False}}, "nothing to compare with a caption"),
])
def test_a_siglip_that_cannot_compare_is_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(Impossible, match=words):
        from_config(SIGLIP | change)


@pytest.mark.parametrize("targets", [("all-linear",), ("out_proj",), ("head.attention.out_proj",)])
def test_an_adapter_that_the_pooling_head_reads_past_is_refused(targets: tuple[str, ...]) -> None:
    with pytest.raises(Impossible, match="reads past an adapter on its out_proj"):
        interpret(structure_of(from_config(SIGLIP), Setup.of(sequence=16, lora_rank=4, lora_targets=targets))[0])
    interpret(structure_of(from_config(SIGLIP), Setup.of(sequence=16, lora_rank=4, lora_targets=("q_proj", "fc1")))[0])


def test_a_tower_with_a_head_for_pooling_is_left_out() -> None:
    model = from_config(GEMMA | {"vision_config": {"hidden_size": 40}})
    assert model.architecture == "gemma3_text" and any("text part only" in note for note in model.notes)


@pytest.mark.parametrize("variant", GENERATES)
def test_generation_folds(variant: str) -> None:
    """Prefill and decoding of n layers are those of one body, n times; the tower's layers stand by."""
    levels = []
    for unfold in (False, True):
        setup = setup_of(variant, generate=8, precision="bf16")
        structure, numbers = structure_of(from_config(VARIANTS[variant]), setup, unfold=unfold)
        levels.append(replay(compiled(interpret(structure)), numbers))
    assert levels[0] == levels[1]


def test_a_picture_needs_room_among_the_tokens() -> None:
    model = from_config(LLAVA)
    assert dict(structure_of(model, Setup.of(sequence=16))[1])["N"] == 16
    with pytest.raises(Impossible, match="a picture takes 16 tokens of it"):
        structure_of(model, Setup.of(sequence=15))
    structure_of(model, Setup.of(sequence=15, images=0))


def test_without_pictures_no_gradient_reaches_the_tower() -> None:
    tapes = [interpret(structure_of(from_config(LLAVA), Setup.of(sequence=16, images=n), unfold=True)[0])
             for n in (0, 1)]
    reached = [{p.full_name for p in tape.parameters.values() if p.owned.reached} for tape in tapes]
    assert not any("vision" in name or "projector" in name for name in reached[0])
    last = [name for name in reached[1] if "vision_tower.encoder.layers" in name]
    assert last and reached[0] < reached[1]


@pytest.mark.parametrize("name", TINY)
def test_tiny_steps(name: str) -> None:
    """Phases of the folded model, and every allocation of the unfolded one."""
    assert differences(TINY[name]) == {}
    for phase, (ours, want) in events_by_phase(TINY[name]).items():
        assert ours == want, phase


def test_every_family_is_traced() -> None:
    assert {record["config"]["model_type"] for record in TINY.values()} == set(FAMILIES)


@pytest.mark.parametrize(("config", "words"), [
    (LLAVA | {"vision_feature_layer": [1, 2]}, "one number"),
    (LLAVA | {"vision_feature_layer": 0}, "2 layers"), (LLAVA | {"vision_feature_layer": -4}, "2 layers"),
    (LLAVA | {"vision_feature_select_strategy": "some"}, "default or full"),
    (LLAVA | {"text_config": {"model_type": "gpt2"}}, "text model"),
    (LLAVA | {"vision_config": {"model_type": "siglip_vision_model"}}, "image tower"),
    (QWEN | {"vision_config": DEEP | {"num_heads": 3}}, "not divisible"),
    (PALIGEMMA | {"projection_dim": 40}, "is not the text's hidden_size, 48"),
    (PALIGEMMA | {"text_config": TEXT | {"model_type": "gemma3_text"}}, "text model"),
    (PALIGEMMA | {"vision_config": {"hidden_size": 40, "num_attention_heads": 4}}, "a head that pools"),
    (GEMMA | {"mm_tokens_per_image": 8}, "square of a number"), (GEMMA | {"mm_tokens_per_image": 9}, "that divides"),
    (QWEN | {"vision_config": DEEP | {"deepstack_visual_indexes": 3}}, "give a list"),
    ({"model_type": "qwen2_5_vl", "vision_config": TOWER | {"fullatt_block_indexes": ["7"]}}, "give a list"),
])
def test_other_vision_language_models_are_refused(config: dict[str, Any], words: str) -> None:
    with pytest.raises(PeakmemError, match=words):
        from_config(config)


@pytest.mark.parametrize(("change", "words"), [
    ({"depths": [2]}, "as many"), ({"layer_type": "wide"}, "bottleneck or basic"), ({"hidden_sizes": [22, 24]}, "4"),
    ({"depths": 3}, "give a list"), ({"depths": [0, 1]}, "depths"),
])
def test_other_resnets_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(PeakmemError, match=words):
        from_config(RESNET | change)


def test_a_resnet_is_not_checkpointed() -> None:
    with pytest.raises(Impossible, match="does not support"):
        structure_of(from_config(RESNET), Setup.of(checkpoint="full"))


@pytest.mark.parametrize(("change", "error", "words"), [
    ({"text_config": 3}, Unreadable, "give an object"),
    ({"vision_config": {"image_size": 8, "patch_size": 9}}, Impossible, "larger"),
    ({"vision_config": {"hidden_size": 50, "num_attention_heads": 4}}, Impossible, "vision_config"),
])
def test_what_no_class_takes_is_refused(change: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        from_config(CLIP | change)
