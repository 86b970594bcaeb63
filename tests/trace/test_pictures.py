"""Text with pictures: the estimate's chart, phases and counts are those of the traced model."""

from __future__ import annotations

from typing import Any

import pytest

from peakmem import estimate
from peakmem.readers.hf_config import from_config
from peakmem.setup import Setup
from peakmem.trace.models import as_json
from peakmem.trace.process import Worker
from peakmem.trace.settings import setting_of

LLAVA: dict[str, Any] = {
    "model_type": "llava", "image_token_index": 88, "vision_feature_layer": -3,
    "text_config": {"model_type": "llama", "hidden_size": 32, "intermediate_size": 72, "num_hidden_layers": 4,
                    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 89},
    "vision_config": {"model_type": "clip_vision_model", "hidden_size": 24, "intermediate_size": 52,
                      "num_hidden_layers": 6, "num_attention_heads": 3, "image_size": 21, "patch_size": 7},
}
QWEN: dict[str, Any] = {
    "model_type": "qwen3_vl", "image_token_id": 80, "video_token_id": 81,
    "text_config": LLAVA["text_config"] | {"head_dim": 8, "rope_parameters": {
        "rope_type": "default", "mrope_section": [2, 1, 1], "rope_theta": 10000.0}},
    "vision_config": {"depth": 7, "hidden_size": 24, "intermediate_size": 52, "num_heads": 3, "patch_size": 36,
                      "out_hidden_size": 32, "num_position_embeddings": 16, "deepstack_visual_indexes": [1, 4]}}
WINDOWS: dict[str, Any] = QWEN | {"model_type": "qwen2_5_vl", "vision_config": QWEN["vision_config"] | {
    "window_size": 216, "fullatt_block_indexes": [2, 5]}}
GEMMA: dict[str, Any] = {
    "model_type": "gemma3", "image_token_index": 80, "mm_tokens_per_image": 4, "text_config": {
        **LLAVA["text_config"], "model_type": "gemma3_text", "head_dim": 8, "sliding_window": 20,
        "num_hidden_layers": 6},
    "vision_config": LLAVA["vision_config"] | {"model_type": "siglip_vision_model", "vision_use_head": False,
                                               "image_size": 28}}


@pytest.mark.parametrize("settings", [
    {"precision": "mixed"}, {"precision": "amp-bf16", "checkpoint": "full"}, {"precision": "bf16", "images": 0},
    {"precision": "fp32", "lora_rank": 4},
])
def test_gemma3(worker: Worker, settings: dict[str, Any]) -> None:
    model, setup = from_config(GEMMA), Setup.of(sequence=27, batch=2, **settings)
    run = {"peakmem": "", **setup.as_json()}
    traced = worker.call(as_json, setting_of(GEMMA, model, setup), run, model.notes)
    ours = estimate(model, sequence=27, batch=2, **settings).as_json()
    for part in ("phases", "chart", "parameters"):
        assert ours[part] == traced[part], part


@pytest.mark.parametrize("config", [QWEN, WINDOWS], ids=["qwen3-vl", "qwen2.5-vl"])
@pytest.mark.parametrize("settings", [
    {"precision": "mixed"}, {"precision": "amp-bf16", "checkpoint": "full"}, {"precision": "bf16", "images": 0},
    {"precision": "fp32", "lora_rank": 4, "images": 2}, {"precision": "bf16", "attention": "math"},
    {"precision": "bf16", "freeze": "visual", "step": "first"},
])
def test_qwen_vl(worker: Worker, config: dict[str, Any], settings: dict[str, Any]) -> None:
    given = dict(sequence=85, batch=2, image_height=700, image_width=300) | settings
    model, setup = from_config(config), Setup.of(**given)
    run = {"peakmem": "", **setup.as_json()}
    traced = worker.call(as_json, setting_of(config, model, setup), run, model.notes)
    ours = estimate(model, **given).as_json()
    for part in ("phases", "chart", "parameters"):
        assert ours[part] == traced[part], part


PALIGEMMA: dict[str, Any] = GEMMA | {
    "model_type": "paligemma", "projection_dim": 32,
    "text_config": GEMMA["text_config"] | {"model_type": "gemma2", "hidden_size": 32}}
IDEFICS: dict[str, Any] = {
    "model_type": "idefics3", "image_token_id": 80, "text_config": LLAVA["text_config"],
    "vision_config": LLAVA["vision_config"] | {"image_size": 28}}


@pytest.mark.parametrize("text", [{"model_type": "gemma", "sliding_window": None}, {"model_type": "gemma2"}],
                         ids=["gemma", "gemma2"])
def test_paligemma_on_text_alone(worker: Worker, text: dict[str, Any]) -> None:
    """Gemma 1's own model asks once more for a mask where none was needed."""
    config = PALIGEMMA | {"text_config": PALIGEMMA["text_config"] | text}
    model, setup = from_config(config), Setup.of(sequence=27, batch=2, precision="bf16", images=0)
    traced = worker.call(as_json, setting_of(config, model, setup), {"peakmem": "", **setup.as_json()}, model.notes)
    ours = estimate(model, sequence=27, batch=2, precision="bf16", images=0).as_json()
    for part in ("phases", "chart", "parameters"):
        assert ours[part] == traced[part], part


@pytest.mark.parametrize("config", [PALIGEMMA, IDEFICS], ids=["paligemma 2", "idefics3"])
def test_towers_that_kbit_preparation_has_raised(worker: Worker, config: dict[str, Any]) -> None:
    """Pixels are cast to the dtype of raised weights; of PaliGemma 2 the text alone is eager."""
    settings = {"precision": "amp-bf16", "lora_rank": 4, "weights": "nf4", "kbit_prepare": "trl"}
    model, setup = from_config(config), Setup.of(sequence=27, batch=2, **settings)
    traced = worker.call(as_json, setting_of(config, model, setup), {"peakmem": "", **setup.as_json()}, model.notes)
    ours = estimate(model, sequence=27, batch=2, **settings).as_json()
    for part in ("phases", "chart", "parameters"):
        assert ours[part] == traced[part], part


@pytest.mark.parametrize("settings", [
    {"precision": "mixed"}, {"precision": "amp-bf16", "checkpoint": "full"}, {"precision": "mixed", "frozen_layers": 7},
    {"precision": "bf16", "images": 0}, {"precision": "fp32", "lora_rank": 4},
    {"precision": "amp-bf16", "lora_rank": 4, "weights": "nf4", "kbit_prepare": "trl"},
])
def test_llava(worker: Worker, settings: dict[str, Any]) -> None:
    model, setup = from_config(LLAVA), Setup.of(sequence=19, batch=2, **settings)
    run = {"peakmem": "", **setup.as_json()}
    traced = worker.call(as_json, setting_of(LLAVA, model, setup), run, model.notes)
    ours = estimate(model, sequence=19, batch=2, **settings).as_json()
    for part in ("phases", "chart", "parameters"):
        assert ours[part] == traced[part], part
