"""What transformers 5.24 assumes for encoders beyond BERT and RoBERTa: see defaults.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Row = Mapping[str, Any]

_BERT: Row = {"vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
              "intermediate_size": 3072, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
              "attention_probs_dropout_prob": 0.1, "max_position_embeddings": 512, "tie_word_embeddings": True}

_BART: Row = {"vocab_size": 50265, "max_position_embeddings": 1024, "encoder_layers": 12, "encoder_ffn_dim": 4096,
              "encoder_attention_heads": 16, "decoder_layers": 12, "decoder_ffn_dim": 4096,
              "decoder_attention_heads": 16, "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0,
              "activation_function": "gelu", "d_model": 1024, "dropout": 0.1, "attention_dropout": 0.0,
              "activation_dropout": 0.0, "tie_word_embeddings": True}

ENCODERS: Mapping[str, Row] = {
    "distilbert": {"vocab_size": 30522, "max_position_embeddings": 512, "sinusoidal_pos_embds": False, "n_layers": 6,
                   "n_heads": 12, "dim": 768, "hidden_dim": 3072, "dropout": 0.1, "attention_dropout": 0.1,
                   "activation": "gelu", "tie_word_embeddings": True},
    "electra": {**_BERT, "embedding_size": 128, "hidden_size": 256, "num_attention_heads": 4,
                "intermediate_size": 1024, "type_vocab_size": 2, "is_decoder": False, "add_cross_attention": False},
    "modernbert": {"vocab_size": 50368, "hidden_size": 768, "intermediate_size": 1152, "num_hidden_layers": 22,
                   "num_attention_heads": 12, "hidden_activation": "gelu", "norm_bias": False,
                   "attention_bias": False, "attention_dropout": 0.0, "layer_types": None, "local_attention": 128,
                   "embedding_dropout": 0.0, "mlp_bias": False, "mlp_dropout": 0.0, "decoder_bias": True,
                   "classifier_bias": False, "classifier_activation": "gelu", "sparse_prediction": False,
                   "tie_word_embeddings": True},
    "deberta-v2": {**_BERT, "vocab_size": 128100, "hidden_size": 1536, "num_hidden_layers": 24,
                   "num_attention_heads": 24, "intermediate_size": 6144, "type_vocab_size": 0,
                   "relative_attention": False, "max_relative_positions": -1, "position_biased_input": True,
                   "pos_att_type": None, "legacy": True},
    "bart": _BART, "mbart": _BART, "pegasus": _BART,
    "marian": {**_BART, "vocab_size": 58101, "decoder_vocab_size": None, "share_encoder_decoder_embeddings": True},
    "m2m_100": {**_BART, "vocab_size": 128112, "encoder_layerdrop": 0.05, "decoder_layerdrop": 0.05,
                "activation_function": "relu", "attention_dropout": 0.1},
    "mpnet": {**_BERT, "vocab_size": 30527, "relative_attention_num_buckets": 32},
}

ENCODER_ALIASES: Mapping[str, Mapping[str, str]] = {
    **dict.fromkeys(("bart", "mbart", "marian", "pegasus", "m2m_100"), {
        "hidden_size": "d_model", "num_hidden_layers": "encoder_layers",
        "num_attention_heads": "encoder_attention_heads"}),
    "distilbert": {"hidden_size": "dim", "num_attention_heads": "n_heads", "num_hidden_layers": "n_layers"},
}
