"""What transformers 5.24 assumes for RoBERTa, encoder-decoders, for models of several towers: see defaults.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peakmem.readers.defaults_diffusion import DIT, UNET

Row = Mapping[str, Any]

_ROBERTA: Row = {"vocab_size": 50265, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
                 "intermediate_size": 3072, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
                 "attention_probs_dropout_prob": 0.1, "max_position_embeddings": 512, "type_vocab_size": 2,
                 "pad_token_id": 1, "is_decoder": False, "add_cross_attention": False, "tie_word_embeddings": True}

TOWERS: Mapping[str, Row] = {
    "roberta": _ROBERTA, "xlm-roberta": {**_ROBERTA, "vocab_size": 30522},
    "camembert": {**_ROBERTA, "vocab_size": 30522},
    "t5": {"vocab_size": 32128, "d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_decoder_layers": None,
           "num_heads": 8, "relative_attention_num_buckets": 32, "dropout_rate": 0.1, "feed_forward_proj": "relu"},
    "mt5": {"vocab_size": 250112, "d_model": 512, "d_kv": 64, "d_ff": 1024, "num_layers": 8, "num_decoder_layers": None,
            "num_heads": 6, "relative_attention_num_buckets": 32, "dropout_rate": 0.1,
            "feed_forward_proj": "gated-gelu"},
    "unet_2d_condition": UNET, "dit": DIT,
    "whisper": {"vocab_size": 51865, "num_mel_bins": 80, "encoder_layers": 4, "encoder_attention_heads": 6,
                "decoder_layers": 4, "decoder_attention_heads": 6, "decoder_ffn_dim": 1536, "encoder_ffn_dim": 1536,
                "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0, "activation_function": "gelu", "d_model": 384,
                "dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0, "max_source_positions": 1500,
                "max_target_positions": 448, "apply_spec_augment": False, "tie_word_embeddings": True},
    "llava": {"text_config": None, "vision_config": None, "projector_hidden_act": "gelu",
              "multimodal_projector_bias": True, "vision_feature_layer": -2,
              "vision_feature_select_strategy": "default", "tie_word_embeddings": False},
    **dict.fromkeys(("idefics3", "smolvlm"), {"text_config": None, "vision_config": None, "scale_factor": 2,
                                              "tie_word_embeddings": False}),
    "mistral3": {"text_config": None, "vision_config": None, "projector_hidden_act": "gelu",
                 "multimodal_projector_bias": False, "vision_feature_layer": -1, "spatial_merge_size": 2,
                 "tie_word_embeddings": True},
    "internvl": {"text_config": None, "vision_config": None, "image_seq_length": 256, "downsample_ratio": 0.5,
                 "projector_hidden_act": "gelu", "vision_feature_layer": -1,
                 "vision_feature_select_strategy": "default", "tie_word_embeddings": True},
    "paligemma": {"text_config": None, "vision_config": None, "projection_dim": 2048, "tie_word_embeddings": True},
    "gemma3": {"text_config": None, "vision_config": None, "mm_tokens_per_image": 256, "tie_word_embeddings": True},
    "gemma4": {"text_config": None, "vision_config": None, "audio_config": None, "tie_word_embeddings": True},
    **dict.fromkeys(("qwen2_vl", "qwen2_5_vl"), {"text_config": None, "vision_config": None,
                                                 "tie_word_embeddings": False}),
    "qwen3_5": {"text_config": None, "vision_config": None, "tie_word_embeddings": False},
    "qwen3_vl": {"text_config": None, "vision_config": None, "tie_word_embeddings": False},
    "qwen3_vl_moe": {"text_config": None, "vision_config": None, "tie_word_embeddings": False},
    "resnet": {"num_channels": 3, "embedding_size": 64, "hidden_sizes": (256, 512, 1024, 2048),
               "depths": (3, 4, 6, 3), "layer_type": "bottleneck", "hidden_act": "relu",
               "downsample_in_first_stage": False, "downsample_in_bottleneck": False},
    "clip": {"text_config": None, "vision_config": None, "projection_dim": 512},
    "siglip": {"text_config": None, "vision_config": None},
}

CLIP_TEXT: Row = {
    "vocab_size": 49408, "hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 12,
    "num_attention_heads": 8, "max_position_embeddings": 77, "hidden_act": "quick_gelu", "attention_dropout": 0.0,
    "eos_token_id": 49407,
}
CLIP_VISION: Row = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
    "num_channels": 3, "image_size": 224, "patch_size": 32, "hidden_act": "quick_gelu", "attention_dropout": 0.0,
}
SIGLIP_VISION: Row = {
    **CLIP_VISION, "image_size": 224, "patch_size": 16, "hidden_act": "gelu_pytorch_tanh", "vision_use_head": True,
}
SIGLIP_TEXT: Row = {
    "vocab_size": 32000, "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12,
    "num_attention_heads": 12, "max_position_embeddings": 64, "hidden_act": "gelu_pytorch_tanh",
    "attention_dropout": 0.0, "projection_size": None,
}
PALIGEMMA_VISION: Row = {
    **SIGLIP_VISION, "hidden_size": 1152, "intermediate_size": 4096, "num_hidden_layers": 27,
    "num_attention_heads": 16, "patch_size": 14, "vision_use_head": False,
}
PALIGEMMA_TEXT: Row = {"hidden_size": 2048, "num_hidden_layers": 18, "intermediate_size": 16384,
                       "num_attention_heads": 8, "num_key_value_heads": 1, "vocab_size": 257152}
LLAVA_VISION: Row = {
    **CLIP_VISION, "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
    "image_size": 336, "patch_size": 14,
}
_QWEN_VISION: Row = {"depth": 27, "hidden_size": 1152, "hidden_act": "gelu_pytorch_tanh", "intermediate_size": 4304,
                     "num_heads": 16, "in_channels": 3, "patch_size": 16, "spatial_merge_size": 2,
                     "temporal_patch_size": 2, "out_hidden_size": 3584, "num_position_embeddings": 2304,
                     "deepstack_visual_indexes": [8, 16, 24]}
QWEN_VISION: Mapping[str, Row] = {
    "qwen2_5_vl": {**_QWEN_VISION, "depth": 32, "hidden_size": 3584, "hidden_act": "silu", "intermediate_size": 3420,
                   "patch_size": 14, "window_size": 112, "fullatt_block_indexes": [7, 15, 23, 31]},
    "qwen2_vl": {"depth": 32, "embed_dim": 1280, "hidden_size": 3584, "hidden_act": "quick_gelu", "mlp_ratio": 4,
                 "num_heads": 16, "in_channels": 3, "patch_size": 14, "spatial_merge_size": 2,
                 "temporal_patch_size": 2},
    "qwen3_vl": _QWEN_VISION, "qwen3_vl_moe": _QWEN_VISION, "qwen3_5": _QWEN_VISION,
}
_QWEN2_TEXT: Row = {
    "vocab_size": 152064, "hidden_size": 8192, "intermediate_size": 29568, "num_hidden_layers": 80,
    "num_attention_heads": 64, "num_key_value_heads": 8, "hidden_act": "silu", "attention_dropout": 0.0,
    "use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 80, "layer_types": None,
    "tie_word_embeddings": False}
QWEN_TEXT: Mapping[str, Row] = {
    "qwen2_vl": _QWEN2_TEXT, "qwen2_5_vl": _QWEN2_TEXT,
    "qwen3_vl": {"vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32,
                 "num_attention_heads": 32, "num_key_value_heads": 32, "head_dim": 128, "hidden_act": "silu",
                 "attention_dropout": 0.0, "attention_bias": False, "tie_word_embeddings": False},
    "qwen3_vl_moe": {"vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 24,
                     "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": None, "hidden_act": "silu",
                     "attention_dropout": 0.0, "attention_bias": False, "decoder_sparse_step": 1,
                     "moe_intermediate_size": 1408, "num_experts_per_tok": 4, "num_experts": 60,
                     "output_router_logits": False, "mlp_only_layers": None, "norm_topk_prob": True,
                     "use_sliding_window": False, "tie_word_embeddings": False},
}

TOWER_ALIASES: Mapping[str, Mapping[str, str]] = {
    "whisper": {"hidden_size": "d_model", "num_hidden_layers": "encoder_layers",
                "num_attention_heads": "encoder_attention_heads", "num_key_value_heads": "encoder_attention_heads"},
    **dict.fromkeys(("convnext", "convnextv2"), {"num_hidden_layers": "num_stages"}),
    **dict.fromkeys(("t5", "mt5"), {"hidden_size": "d_model", "num_attention_heads": "num_heads",
                                    "num_hidden_layers": "num_layers", "head_dim": "d_kv"}),
}
