"""What transformers 5.24 assumes for models that classify pictures: see defaults.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Row = Mapping[str, Any]

_VIT: Row = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "hidden_act": "gelu",
             "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "image_size": 224, "patch_size": 16,
             "num_channels": 3, "qkv_bias": True}
_DINO: Row = {**_VIT, "mlp_ratio": 4, "drop_path_rate": 0.0, "use_swiglu_ffn": False}
_CONVNEXT: Row = {"num_channels": 3, "patch_size": 4, "num_stages": 4, "hidden_sizes": (96, 192, 384, 768),
                  "depths": (3, 3, 9, 3), "hidden_act": "gelu", "drop_path_rate": 0.0, "image_size": 224}

PICTURES: Mapping[str, Row] = {
    "deit": {**_VIT, "intermediate_size": 3072},
    "convnext": {**_CONVNEXT, "layer_scale_init_value": 1e-6}, "convnextv2": _CONVNEXT,
    "dinov2": {**_DINO, "patch_size": 14, "use_mask_token": True},
    "dinov2_with_registers": {**_DINO, "num_register_tokens": 4},
}
