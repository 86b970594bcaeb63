"""What transformers 5.24 assumes for more decoders that are Llama's kin: see defaults.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Row = Mapping[str, Any]

_DECODER: Row = {"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
                 "num_attention_heads": 32, "num_key_value_heads": None, "hidden_act": "silu",
                 "attention_dropout": 0.0, "attention_bias": False, "tie_word_embeddings": False}
_GRANITE: Row = {**_DECODER, "embedding_multiplier": 1.0, "residual_multiplier": 1.0, "attention_multiplier": 1.0,
                 "logits_scaling": 1.0}

LLAMA_KIN: Mapping[str, Row] = {
    "apertus": {**_DECODER, "vocab_size": 131072, "intermediate_size": 14336, "hidden_act": "xielu"},
    "arcee": {**_DECODER, "hidden_size": 2560, "intermediate_size": 18432, "hidden_act": "relu2", "head_dim": None,
              "mlp_bias": False},
    "cohere2": {**_DECODER, "vocab_size": 256000, "hidden_size": 8192, "intermediate_size": 22528,
                "num_hidden_layers": 40, "num_attention_heads": 64, "tie_word_embeddings": True,
                "sliding_window": 4096, "layer_types": None},
    "cwm": {**{name: value for name, value in _DECODER.items() if name != "attention_bias"}, "vocab_size": 128256,
            "hidden_size": 6144, "intermediate_size": 21504, "num_hidden_layers": 64, "num_attention_heads": 48,
            "num_key_value_heads": 8, "head_dim": 128, "mlp_bias": False, "sliding_window": 8192,
            "layer_types": None},
    "dots1": {**_DECODER, "vocab_size": 152064, "hidden_size": 4608, "intermediate_size": 10944,
              "num_hidden_layers": 62, "num_key_value_heads": 32, "moe_intermediate_size": 1408,
              "n_shared_experts": None, "n_routed_experts": None, "output_router_logits": False, "n_group": 1,
              "topk_group": 1, "num_experts_per_tok": None, "first_k_dense_replace": 0, "norm_topk_prob": False,
              "sliding_window": 4096, "max_window_layers": 62, "layer_types": None},
    "ernie4_5": {"vocab_size": 103424, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 18,
                 "num_attention_heads": 16, "num_key_value_heads": 2, "hidden_act": "silu", "use_bias": False,
                 "head_dim": 128, "tie_word_embeddings": True},
    "ernie4_5_moe": {"vocab_size": 103424, "hidden_size": 2560, "intermediate_size": 12288, "num_hidden_layers": 28,
                     "num_attention_heads": 20, "num_key_value_heads": 4, "hidden_act": "silu", "use_bias": False,
                     "tie_word_embeddings": True, "moe_intermediate_size": 1536, "moe_k": 6, "moe_num_experts": 64,
                     "moe_num_shared_experts": 2, "moe_layer_start_index": 1, "moe_layer_end_index": -1,
                     "moe_layer_interval": 1, "output_router_logits": False},
    "exaone4": {**{name: value for name, value in _DECODER.items() if name != "attention_bias"},
                "vocab_size": 102400, "intermediate_size": 16384, "num_key_value_heads": 32,
                "sliding_window": 4096, "sliding_window_pattern": 4, "layer_types": None},
    "granitemoe": {**_GRANITE, "num_local_experts": 8, "num_experts_per_tok": 2, "output_router_logits": False},
    "helium": {**_DECODER, "vocab_size": 48000, "hidden_size": 2560, "intermediate_size": 7040,
               "num_hidden_layers": 24, "num_attention_heads": 20, "num_key_value_heads": 20, "head_dim": 128,
               "mlp_bias": False},
    "hunyuan_v1_dense": {**_DECODER, "vocab_size": 290943, "head_dim": None},
    "hunyuan_v1_moe": {**_DECODER, "vocab_size": 290943, "head_dim": None, "num_experts": 1, "moe_topk": 1,
                       "output_router_logits": False},
    "iquestcoder": {**_DECODER, "vocab_size": 76800, "hidden_size": 5120, "intermediate_size": 27648,
                    "num_hidden_layers": 80, "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128,
                    "mlp_bias": False},
    "ministral3": {**{name: value for name, value in _DECODER.items() if name != "attention_bias"},
                   "vocab_size": 131072, "intermediate_size": 14336, "num_hidden_layers": 34,
                   "num_key_value_heads": 8, "head_dim": 128, "sliding_window": None},
    "nemotron": {**_DECODER, "vocab_size": 256000, "hidden_size": 6144, "intermediate_size": 24576,
                 "num_attention_heads": 48, "head_dim": None, "hidden_act": "relu2", "mlp_bias": False},
}

LLAMA_KIN_ALIASES: Mapping[str, Mapping[str, str]] = {
    "dots1": {"num_local_experts": "n_routed_experts"},
    "ernie4_5_moe": {"num_experts": "moe_num_experts", "num_experts_per_tok": "moe_k"},
    "hunyuan_v1_moe": {"num_experts_per_tok": "moe_topk", "num_local_experts": "num_experts"},
}
