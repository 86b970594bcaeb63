"""Pictures as tiles, and pictures behind Pixtral's tower, against the real models: parameters, steps, generation."""

from __future__ import annotations

import ast
import json
import math
from pathlib import Path
from typing import Any

import pytest

from peakmem import estimate
from peakmem.errors import Impossible, PeakmemError
from peakmem.estimate.interpret import interpret
from peakmem.estimate.replay import compiled, replay
from peakmem.estimate.settings import structure_of
from peakmem.readers.hf_config import from_config
from peakmem.setup import Setup
from peakmem.tables.pictures import grid_of
from tests.architectures.test_towers import CLIP, TEXT, real_model, sides
from tests.generations import compared
from tests.reference_steps import DATA, differences, events_by_phase

RECORDS = json.loads((DATA / "traced_tiles.json").read_text())
STEPS = {record["id"]: record for record in RECORDS["steps"]}
GENERATION = {record["id"]: record for record in RECORDS["generation"]}
SEEN = {**CLIP["vision_config"], "num_hidden_layers": 4}
WORDS = {**TEXT, "num_hidden_layers": 4}
VARIANTS: dict[str, dict[str, Any]] = {
    "internvl": {"model_type": "internvl", "image_token_id": 90, "text_config": WORDS | {"model_type": "qwen2"},
                 "vision_config": SEEN | {"model_type": "internvl_vision", "use_mask_token": True}},
    "internvl, own head": {
        "model_type": "internvl", "image_token_id": 90, "tie_word_embeddings": False,
        "text_config": WORDS | {"model_type": "qwen3"},
        "vision_config": SEEN | {"norm_type": "rms_norm", "use_qk_norm": True, "use_mean_pooling": False,
                                 "use_absolute_position_embeddings": False, "attention_bias": True}},
    "idefics3": {"model_type": "idefics3", "image_token_id": 90, "text_config": WORDS | {"model_type": "llama"},
                 "vision_config": SEEN},
    "smolvlm": {"model_type": "smolvlm", "image_token_id": 90, "tie_word_embeddings": True, "scale_factor": 4,
                "text_config": WORDS | {"model_type": "llama", "tie_word_embeddings": False}, "vision_config": SEEN},
    "mistral 3": {"model_type": "mistral3", "image_token_index": 90, "text_config": WORDS | {"model_type": "mistral"},
                  "vision_config": SEEN | {"model_type": "pixtral", "num_attention_heads": 2}},
    "ministral 3, own head": {
        "model_type": "mistral3", "image_token_index": 90, "tie_word_embeddings": False, "spatial_merge_size": 1,
        "multimodal_projector_bias": True, "projector_hidden_act": "relu",
        "text_config": WORDS | {"model_type": "ministral3", "max_position_embeddings": 128},
        "vision_config": SEEN | {"model_type": "pixtral", "num_attention_heads": 2}},
}
KINDS = tuple(dict.fromkeys(config["model_type"] for config in VARIANTS.values()))


def batch_of(made: Any, ids: Any) -> dict[str, Any]:
    """Tokens with one tile in each sequence, for the real model."""
    torch = pytest.importorskip("torch")
    sizes = from_config(made.to_dict()).towers[0].sizes
    tokens = sizes["qt"] ** 2 if "qt" in sizes else 16 // sizes["pm"]
    side = made.vision_config.image_size if isinstance(made.vision_config.image_size, int) else 32
    ids = ids.masked_fill(ids == made.image_token_id, 3)
    ids[:, 1:tokens + 1] = made.image_token_id
    given = {"input_ids": ids, "labels": ids.clone()}
    if made.model_type == "mistral3":
        given |= {"image_sizes": [(side, side)] * len(ids)}
    if made.model_type in ("internvl", "mistral3"):
        return given | {"pixel_values": torch.randn(len(ids), 3, side, side)}
    return given | {"pixel_values": torch.randn(len(ids), 1, 3, side, side),
                    "pixel_attention_mask": torch.ones(len(ids), 1, side, side, dtype=torch.int64)}


@pytest.mark.parametrize("variant", VARIANTS)
def test_parameters_are_those_of_transformers(variant: str) -> None:
    """Name for name, shape for shape, in the order of definition."""
    structure, numbers = structure_of(from_config(VARIANTS[variant]), Setup.of(sequence=24), unfold=True)
    ours: list[tuple[str, tuple[int, ...]]] = []
    layers: dict[str, list[str]] = {}
    for key, p in interpret(structure).parameters.items():
        found = layers.setdefault(p.full_name.partition(".*")[0], [])
        found += [] if key.partition(":")[0] in found else [key.partition(":")[0]]
        ours.append((p.full_name.replace("*", str(found.index(key.partition(":")[0]))), sides(p.dims, numbers)))
    assert ours == [(name, tuple(p.shape)) for name, p in real_model(VARIANTS[variant]).named_parameters()]


@pytest.mark.parametrize("name", STEPS)
def test_tiny_steps(name: str) -> None:
    """Phases of the folded model, and every allocation of the unfolded one."""
    assert differences(STEPS[name]) == {}
    for phase, (ours, want) in events_by_phase(STEPS[name]).items():
        assert ours == want, phase


@pytest.mark.parametrize("name", GENERATION)
def test_generation(name: str) -> None:
    for phase, (ours, want) in compared(GENERATION[name]).items():
        assert ours == want, phase


@pytest.mark.parametrize("settings", [
    {}, {"checkpoint": "full", "images": 3}, {"lora_rank": 4}, {"frozen_layers": 3}, {"images": 0},
    {"run": "inference", "images": 1, "generate": 7},
])
@pytest.mark.parametrize("variant", VARIANTS)
def test_layers_fold(variant: str, settings: dict[str, Any]) -> None:
    setup = Setup.of(**{"sequence": 64, "batch": 2, "precision": "bf16"} | settings)
    levels = []
    for unfold in (False, True):
        structure, numbers = structure_of(from_config(VARIANTS[variant]), setup, unfold=unfold)
        levels.append(replay(compiled(interpret(structure)), numbers))
    assert levels[0] == levels[1]


def test_tiles_need_room_among_the_tokens() -> None:
    model = from_config(VARIANTS["idefics3"])
    assert any("one or more tiles of 32 × 32 pixels, each of which takes 4 tokens" in note for note in model.notes)
    assert estimate(model, sequence=12, images=3).peak.bytes > estimate(model, sequence=12, images=2).peak.bytes
    with pytest.raises(Impossible, match="3 pictures take 12 tokens of it"):
        estimate(model, sequence=11, images=3)


@pytest.mark.parametrize(("variant", "change", "said"), [
    ("internvl", {"vision_feature_layer": -2}, "peakmem knows -1 and default"),
    ("internvl", {"downsample_ratio": 0.3}, "1 divided by a whole number"),
    ("internvl", {"text_config": TEXT | {"model_type": "gpt2"}}, "text model"),
    ("internvl", {"vision_config": {"model_type": "vit"}}, "image tower"),
    ("internvl", {"vision_config": SEEN | {"projection_dropout": 0.1}}, "peakmem knows 0"),
    ("internvl", {"vision_config": SEEN | {"norm_type": "none"}}, "layer_norm or rms_norm"),
])
def test_a_file_that_cannot_be(variant: str, change: dict[str, Any], said: str) -> None:
    with pytest.raises(PeakmemError, match=said):
        from_config(VARIANTS[variant] | change)


@pytest.mark.parametrize("change", [{"scale_factor": 3}, {"vision_config": SEEN | {"image_size": 40}}])
def test_tiles_of_no_whole_squares_are_not_looked_at(change: dict[str, Any]) -> None:
    model = from_config(VARIANTS["idefics3"] | change)
    assert any("no picture can be looked at" in note for note in model.notes)
    assert estimate(model, sequence=8).parameters.total == sum(
        p.numel() for p in real_model(VARIANTS["idefics3"] | change).parameters())
    with pytest.raises(Impossible, match="counted without pictures"):
        estimate(model, sequence=50, images=1)


@pytest.mark.parametrize("size", [(448, 448), (1540, 1540), (3000, 2000), (13, 900), (1541, 27), (29, 28)])
def test_the_rounding_of_pixtral_s_processor(size: tuple[int, int]) -> None:
    """get_resize_output_image_size of transformers, with squares of merged patches."""
    transformers = pytest.importorskip("transformers")
    file = Path(transformers.__file__).parent / "models" / "pixtral" / "image_processing_pixtral.py"
    names = ("get_resize_output_image_size", "_num_image_tokens")
    tree = ast.parse(file.read_text(encoding="utf-8"))  # the module itself wants torchvision
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name in names]
    for node in tree.body:
        node.args = ast.parse(f"def f({', '.join(a.arg for a in node.args.args)}, *more): 0").body[0].args
    found: dict[str, Any] = {"math": math, "get_image_size": lambda image, form: image}
    exec(compile(tree, str(file), "exec"), found)
    found["input_data_format"] = None
    height, width = found["get_resize_output_image_size"](size, 1540, 28, None)
    setup = Setup.of(sequence=10000, image_height=size[0], image_width=size[1])
    assert grid_of(from_config({"model_type": "mistral3"}), setup) == (height // 14, width // 14)
