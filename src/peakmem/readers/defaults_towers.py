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
}

TOWER_ALIASES: Mapping[str, Mapping[str, str]] = {
    "t5": {"hidden_size": "d_model", "num_attention_heads": "num_heads", "num_hidden_layers": "num_layers",
           "head_dim": "d_kv"},
}
