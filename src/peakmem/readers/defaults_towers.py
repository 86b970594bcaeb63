"""What transformers 5.24 assumes for RoBERTa, encoder-decoders, for models of several towers: see defaults.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Row = Mapping[str, Any]

TOWERS: Mapping[str, Row] = {
    "roberta": {"vocab_size": 50265, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
                "intermediate_size": 3072, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
                "attention_probs_dropout_prob": 0.1, "max_position_embeddings": 512, "type_vocab_size": 2,
                "pad_token_id": 1, "is_decoder": False, "add_cross_attention": False, "tie_word_embeddings": True},
    "t5": {"vocab_size": 32128, "d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_decoder_layers": None,
           "num_heads": 8, "relative_attention_num_buckets": 32, "dropout_rate": 0.1, "feed_forward_proj": "relu"},
    "whisper": {"vocab_size": 51865, "num_mel_bins": 80, "encoder_layers": 4, "encoder_attention_heads": 6,
                "decoder_layers": 4, "decoder_attention_heads": 6, "decoder_ffn_dim": 1536, "encoder_ffn_dim": 1536,
                "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0, "activation_function": "gelu", "d_model": 384,
                "dropout": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0, "max_source_positions": 1500,
                "max_target_positions": 448, "apply_spec_augment": False, "tie_word_embeddings": True},
    "clip": {"text_config": None, "vision_config": None, "projection_dim": 512},
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

TOWER_ALIASES: Mapping[str, Mapping[str, str]] = {
    "whisper": {"hidden_size": "d_model", "num_hidden_layers": "encoder_layers",
                "num_attention_heads": "encoder_attention_heads", "num_key_value_heads": "encoder_attention_heads"},
    "t5": {"hidden_size": "d_model", "num_attention_heads": "num_heads", "num_hidden_layers": "num_layers",
           "head_dim": "d_kv"},
}
