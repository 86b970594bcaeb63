"""What transformers 5.24 assumes for families that are others' kin: see defaults.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Row = Mapping[str, Any]

_DECODER: Row = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": None,
                 "hidden_act": "silu", "attention_dropout": 0.0, "attention_bias": False,
                 "tie_word_embeddings": False}
_GLM: Row = {**_DECODER, "vocab_size": 151552, "intermediate_size": 13696, "num_hidden_layers": 40,
             "num_key_value_heads": 2, "head_dim": 128, "attention_bias": True}
_OLMO: Row = {**_DECODER, "vocab_size": 50304, "intermediate_size": 11008}

KIN: Mapping[str, Row] = {
    "ministral": {"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
                  "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": None, "hidden_act": "silu",
                  "attention_dropout": 0.0, "tie_word_embeddings": False, "sliding_window": 4096, "layer_types": None},
    "seed_oss": {**_DECODER, "vocab_size": 155136, "intermediate_size": 27648, "num_hidden_layers": 64,
                 "num_attention_heads": 80, "num_key_value_heads": 8, "head_dim": 128, "attention_bias": True,
                 "attention_out_bias": False, "attention_dropout": 0.1, "residual_dropout": 0.1, "mlp_bias": False},
    "glm": _GLM, "glm4": _GLM,
    "olmo": {**_OLMO, "clip_qkv": None},
    "olmo3": {**_OLMO, "sliding_window": 4096, "layer_types": None},
    "olmoe": {**_OLMO, "hidden_size": 2048, "intermediate_size": 2048, "num_hidden_layers": 16,
              "num_attention_heads": 16, "clip_qkv": None, "num_experts_per_tok": 8, "num_experts": 64,
              "output_router_logits": False, "norm_topk_prob": False},
    "smollm3": {**_DECODER, "vocab_size": 128256, "hidden_size": 2048, "intermediate_size": 11008,
                "num_hidden_layers": 36, "num_attention_heads": 16, "num_key_value_heads": 4, "mlp_bias": False,
                "tie_word_embeddings": True, "use_sliding_window": False, "sliding_window": None,
                "no_rope_layers": None, "no_rope_layer_interval": 4, "layer_types": None},
    "minimax_m2": {"vocab_size": 200064, "hidden_size": 3072, "intermediate_size": 1536, "num_hidden_layers": 62,
                   "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128, "hidden_act": "silu",
                   "attention_dropout": 0.0, "tie_word_embeddings": False, "num_experts_per_tok": 8,
                   "num_local_experts": 256, "output_router_logits": False, "router_jitter_noise": 0.0},
    "qwen2_moe": {"vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 24,
                  "num_attention_heads": 16, "num_key_value_heads": 16, "hidden_act": "silu",
                  "attention_dropout": 0.0, "tie_word_embeddings": False, "use_sliding_window": False,
                  "sliding_window": 4096, "max_window_layers": 28, "decoder_sparse_step": 1,
                  "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632, "num_experts_per_tok": 4,
                  "num_experts": 60, "norm_topk_prob": False, "output_router_logits": False, "mlp_only_layers": None,
                  "qkv_bias": True, "layer_types": None},
    "glm4_moe": {**_DECODER, "vocab_size": 151552, "intermediate_size": 10944, "num_hidden_layers": 46,
                 "num_attention_heads": 96, "num_key_value_heads": 8, "moe_intermediate_size": 1408,
                 "num_experts_per_tok": 8, "output_router_logits": False, "n_shared_experts": 1,
                 "n_routed_experts": 128, "n_group": 1, "topk_group": 1, "first_k_dense_replace": 1,
                 "norm_topk_prob": True, "use_qk_norm": False, "head_dim": None},
    "glm4_moe_lite": {"vocab_size": 154880, "hidden_size": 2048, "intermediate_size": 10240, "num_hidden_layers": 47,
                      "num_attention_heads": 20, "hidden_act": "silu", "attention_dropout": 0.0,
                      "attention_bias": False, "tie_word_embeddings": False, "output_router_logits": False,
                      "kv_lora_rank": 512, "q_lora_rank": 768, "qk_rope_head_dim": 64, "v_head_dim": 256,
                      "qk_nope_head_dim": 192, "n_shared_experts": 1, "n_routed_experts": 64, "n_group": 1,
                      "topk_group": 1, "num_experts_per_tok": 4, "moe_intermediate_size": 1536,
                      "norm_topk_prob": True, "rope_interleave": True, "mlp_layer_types": None},
    "mimo_v2_flash": {**_DECODER, "vocab_size": 152576, "intermediate_size": 16384, "num_hidden_layers": 48,
                      "num_attention_heads": 64, "num_key_value_heads": 4, "moe_intermediate_size": 2048,
                      "num_experts_per_tok": 8, "output_router_logits": False, "n_routed_experts": 256, "n_group": 1,
                      "topk_group": 1, "norm_topk_prob": True, "head_dim": 192, "v_head_dim": 128,
                      "sliding_window": 129, "layer_types": None, "mlp_layer_types": None},
}

KIN_ALIASES: Mapping[str, Mapping[str, str]] = {
    "olmoe": {"num_local_experts": "num_experts"},
    "minimax_m2": {"num_experts": "num_local_experts"},
    "glm4_moe": {"num_local_experts": "n_routed_experts"},
    "mimo_v2_flash": {"num_local_experts": "n_routed_experts"},
    "glm4_moe_lite": {"num_local_experts": "n_routed_experts", "head_dim": "qk_rope_head_dim"},
}
