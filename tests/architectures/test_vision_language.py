"""Models that read pictures of any size between their tokens, against the real models: traced steps and generation."""

from __future__ import annotations

import ast
import json
import math
from pathlib import Path
from typing import Any

import pytest

from peakmem import estimate
from peakmem.errors import Impossible
from peakmem.estimate.interpret import interpret
from peakmem.estimate.replay import compiled, replay
from peakmem.estimate.settings import structure_of
from peakmem.readers.hf_config import from_config
from peakmem.setup import Setup
from peakmem.tables.models import presets
from peakmem.tables.pictures import grid_of, grids_of
from tests.architectures.test_towers import TEXT
from tests.generations import compared
from tests.reference_steps import DATA, differences, events_by_phase

RECORDS = json.loads((DATA / "traced_pictures.json").read_text())
STEPS = {record["id"]: record for record in RECORDS["steps"]}
GENERATION = {record["id"]: record for record in RECORDS["generation"]}

WORDS: dict[str, Any] = TEXT | {
    "num_hidden_layers": 4, "bos_token_id": 1, "eos_token_id": 2,
    "rope_parameters": {"rope_type": "default", "mrope_section": [2, 1, 1], "rope_theta": 10000.0}}
PLACES = {"text_config": WORDS, "image_token_id": 90, "video_token_id": 91}
OLD: dict[str, Any] = {"depth": 5, "hidden_size": 32, "intermediate_size": 44, "num_heads": 4, "patch_size": 20,
                       "spatial_merge_size": 2, "temporal_patch_size": 2, "out_hidden_size": 48}
NEW = OLD | {"patch_size": 40, "num_position_embeddings": 25, "deepstack_visual_indexes": [0, 2]}
VARIANTS: dict[str, dict[str, Any]] = {
    "qwen2-vl": {"model_type": "qwen2_vl", **PLACES, "vision_config": {
        "depth": 3, "embed_dim": 32, "hidden_size": 48, "mlp_ratio": 3, "num_heads": 4, "patch_size": 40}},
    "qwen2.5-vl": {"model_type": "qwen2_5_vl", **PLACES, "vision_config": OLD | {
        "patch_size": 40, "window_size": 160, "fullatt_block_indexes": [1, 3]}},
    "qwen3-vl": {"model_type": "qwen3_vl", **PLACES, "vision_config": NEW},
    "qwen3-vl-moe": {"model_type": "qwen3_vl_moe", **PLACES, "vision_config": NEW, "text_config": WORDS | {
        "moe_intermediate_size": 24, "num_experts": 4, "num_experts_per_tok": 2}},
}
KINDS = tuple(config["model_type"] for config in VARIANTS.values())
SIZE = {"image_height": 260, "image_width": 290}


def batch_of(made: Any, ids: Any) -> dict[str, Any]:
    """Tokens with one picture of that size in each sequence, for the real model."""
    torch = pytest.importorskip("torch")
    count, rows, columns = grids_of(from_config(made.to_dict()), Setup.of(sequence=ids.shape[1], **SIZE)) or (0, 0, 0)
    seen = made.vision_config
    places = torch.zeros_like(ids)
    places[:, 1:rows * columns // seen.spatial_merge_size**2 + 1] = 1
    ids = ids.masked_fill(ids >= 90, 3).masked_fill(places.bool(), made.image_token_id)
    patch = seen.in_channels * seen.temporal_patch_size * seen.patch_size**2
    return {"input_ids": ids, "labels": ids.clone(), "mm_token_type_ids": places,
            "image_grid_thw": torch.tensor([[1, rows, columns]] * len(ids)),
            "pixel_values": torch.randn(len(ids) * rows * columns, patch)}


@pytest.mark.parametrize("name", STEPS)
def test_tiny_steps(name: str) -> None:
    """Phases of the folded model, and every allocation of the unfolded one."""
    assert differences(STEPS[name]) == {}
    for phase, (ours, want) in events_by_phase(STEPS[name]).items():
        assert ours == want, phase


@pytest.mark.parametrize("name", GENERATION)
def test_generation(name: str) -> None:
    """The picture and the prompt, the first and the last token."""
    for phase, (ours, want) in compared(GENERATION[name]).items():
        assert ours == want, phase


def test_every_family_is_traced() -> None:
    kinds = {*KINDS, "qwen3_5", "gemma3", "paligemma"}
    assert {record["config"]["model_type"] for record in STEPS.values()} == kinds
    assert {record["config"]["model_type"] for record in GENERATION.values()} == {*kinds, "llava"}


@pytest.mark.parametrize("settings", [
    {}, {"checkpoint": "full"}, {"lora_rank": 4, "images": 2}, {"frozen_layers": 3}, {"freeze": "visual"},
    {"run": "inference", "images": 1, "generate": 7}, {"attention": "flash-package"},
])
@pytest.mark.parametrize("variant", ["qwen2.5-vl", "qwen3-vl"])
def test_layers_fold(variant: str, settings: dict[str, Any]) -> None:
    config = VARIANTS[variant] | {"vision_config": VARIANTS[variant]["vision_config"] | {"depth": 9}}
    setup = Setup.of(**{"sequence": 40, "batch": 2, "precision": "bf16"} | SIZE | settings)
    levels = []
    for unfold in (False, True):
        structure, numbers = structure_of(from_config(config), setup, unfold=unfold)
        levels.append(replay(compiled(interpret(structure)), numbers))
    assert levels[0] == levels[1]


def sized(height: int, width: int, **more: Any) -> Setup:
    return Setup.of(sequence=20000, image_height=height, image_width=width, **more)


@pytest.mark.parametrize(("name", "size"), [
    ("qwen2.5-vl-7b", size) for size in ((448, 448), (1080, 1920), (30, 60), (9, 1700), (4000, 5000), (13, 27))
] + [("qwen3-vl-4b", size) for size in ((448, 448), (100, 70), (5000, 5000), (720, 1279))])
def test_a_processor_s_rounding(name: str, size: tuple[int, int]) -> None:
    """smart_resize of transformers, with the least and the most pixels that the files beside the weights give."""
    transformers = pytest.importorskip("transformers")
    file = Path(transformers.__file__).parent / "models" / "qwen2_vl" / "image_processing_qwen2_vl.py"
    tree = ast.parse(file.read_text(encoding="utf-8"))  # the module itself wants torchvision
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "smart_resize"]
    found: dict[str, Any] = {"math": math}
    exec(compile(tree, str(file), "exec"), found)
    model = from_config(presets()[name].config)
    least, most = (65536, 16777216) if "3-vl" in name else (3136, 12845056)
    height, width = found["smart_resize"](*size, model.patch * 2, least, most)
    assert grid_of(model, sized(*size)) == (height // model.patch, width // model.patch)


@pytest.mark.parametrize(("settings", "words"), [
    ({"image_height": 10, "image_width": 2010}, "more than 200 times"),
    ({"sequence": 10}, "a picture takes 12 tokens of it; give 12 or more"),
    ({"images": 2}, "2 pictures take 24 tokens"),
    ({"batch": 1000, "images": 1, "attention": "flash"}, "at most 1,024 calls of attention"),
    ({"run": "inference", "images": 1, "beams": 2}, "without beams"),
    ({"run": "inference", "images": 1, "prefill_chunk": 5}, "--prefill-chunk"),
])
def test_what_is_not_known_of_pictures_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(Impossible, match=words):
        structure_of(from_config(VARIANTS["qwen2.5-vl"]), Setup.of(**{"sequence": 20} | SIZE | settings))


def test_a_larger_picture_keeps_more() -> None:
    small, large = (estimate("qwen2.5-vl-3b", sequence=4096, image_height=side, image_width=side)
                    for side in (448, 1344))
    patches = [(side // 14) ** 2 for side in (448, 1344)]
    kept = [ledger.kinds["activations"].largest for ledger in (small, large)]
    assert kept[1] - kept[0] > 32 * 10 * (patches[1] - patches[0]) * 1280 * 2  # ten such tensors a layer, at least


def test_a_model_that_sees_pictures_is_not_divided() -> None:
    """Qwen3.5 on text alone is known under FSDP2, with pictures it is not."""
    record = next(r for r in STEPS.values() if r["config"]["model_type"] == "qwen3_5")
    model = from_config(record["config"])
    divided = {"sequence": 400, "shard": "fsdp2", "gpus": 2}
    with pytest.raises(Impossible, match="give --images 0"):
        structure_of(model, Setup.of(**divided))
    structure_of(model, Setup.of(**divided, images=0))
