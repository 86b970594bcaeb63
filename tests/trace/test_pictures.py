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


@pytest.mark.parametrize("settings", [
    {"precision": "mixed"}, {"precision": "amp-bf16", "checkpoint": "full"}, {"precision": "mixed", "frozen_layers": 7},
    {"precision": "bf16", "images": 0}, {"precision": "fp32", "lora_rank": 4},
])
def test_llava(worker: Worker, settings: dict[str, Any]) -> None:
    model, setup = from_config(LLAVA), Setup.of(sequence=19, batch=2, **settings)
    run = {"peakmem": "", **setup.as_json()}
    traced = worker.call(as_json, setting_of(LLAVA, model, setup), run, model.notes)
    ours = estimate(model, sequence=19, batch=2, **settings).as_json()
    for part in ("phases", "chart", "parameters"):
        assert ours[part] == traced[part], part
