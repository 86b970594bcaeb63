"""What transformers 5.24 assumes for families with latents, sinks, chunks and recurrent states: see defaults.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Row = Mapping[str, Any]

_LATENT: Row = {"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
                "v_head_dim": 128, "hidden_act": "silu", "attention_bias": False, "attention_dropout": 0.0,
                "tie_word_embeddings": False, "output_router_logits": False}
_DELTA: Row = {"num_attention_heads": 16, "hidden_act": "silu", "attention_dropout": 0.0,
               "attention_bias": False, "tie_word_embeddings": False, "head_dim": 256, "layer_types": None,
               "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
               "linear_num_key_heads": 16, "linear_num_value_heads": 32}

RECENT: Mapping[str, Row] = {
    "deepseek_v2": {**_LATENT, "vocab_size": 102400, "hidden_size": 4096, "intermediate_size": 11008,
                    "num_hidden_layers": 32, "num_attention_heads": 32, "mlp_bias": False, "first_k_dense_replace": 0,
                    "n_group": None, "topk_group": None, "topk_method": "greedy", "n_routed_experts": 64,
                    "n_shared_experts": 2, "num_experts_per_tok": None, "moe_intermediate_size": 1407},
    "deepseek_v3": {**_LATENT, "vocab_size": 129280, "hidden_size": 7168, "intermediate_size": 18432,
                    "num_hidden_layers": 61, "num_attention_heads": 128, "first_k_dense_replace": 3,
                    "n_group": 8, "topk_group": 4, "n_routed_experts": 256, "n_shared_experts": 1,
                    "num_experts_per_tok": 8, "moe_intermediate_size": 2048, "norm_topk_prob": True,
                    "rope_interleave": True},
    "gpt_oss": {"vocab_size": 201088, "hidden_size": 2880, "intermediate_size": 2880, "num_hidden_layers": 36,
                "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "hidden_act": "silu",
                "attention_bias": True, "attention_dropout": 0.0, "sliding_window": 128, "layer_types": None,
                "num_local_experts": 128, "num_experts_per_tok": 4, "output_router_logits": False,
                "tie_word_embeddings": False},
    "llama4_text": {"vocab_size": 202048, "hidden_size": 5120, "intermediate_size": 8192,
                    "intermediate_size_mlp": 16384, "num_hidden_layers": 48, "num_attention_heads": 40,
                    "num_key_value_heads": 8, "head_dim": 128, "hidden_act": "silu", "attention_bias": False,
                    "attention_dropout": 0.0, "tie_word_embeddings": False, "num_local_experts": 16,
                    "output_router_logits": False,
                    "num_experts_per_tok": 1, "interleave_moe_layer_step": 1, "use_qk_norm": True,
                    "no_rope_layer_interval": 4, "attention_chunk_size": 8192, "attn_temperature_tuning": True},
    "qwen3_next": {**_DELTA, "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 5632,
                   "num_hidden_layers": 48, "num_key_value_heads": 2, "decoder_sparse_step": 1,
                   "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512, "num_experts_per_tok": 10,
                   "num_experts": 512, "norm_topk_prob": True, "output_router_logits": False},
    "qwen3_5_text": {**_DELTA, "vocab_size": 248320, "hidden_size": 4096, "intermediate_size": 12288,
                     "num_hidden_layers": 32, "num_key_value_heads": 4},
    "mamba": {"vocab_size": 50280, "hidden_size": 768, "state_size": 16, "num_hidden_layers": 32, "expand": 2,
              "conv_kernel": 4, "use_bias": False, "use_conv_bias": True, "hidden_act": "silu",
              "residual_in_fp32": True, "time_step_rank": "auto", "tie_word_embeddings": True},
    "jamba": {"vocab_size": 65536, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
              "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_act": "silu", "attention_dropout": 0.0,
              "tie_word_embeddings": False, "output_router_logits": False, "num_experts_per_tok": 2,
              "num_experts": 16, "expert_layer_period": 2, "expert_layer_offset": 1, "attn_layer_period": 8,
              "attn_layer_offset": 4, "mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2,
              "mamba_dt_rank": "auto", "mamba_conv_bias": True, "mamba_proj_bias": False},
    "nemotron_h": {"vocab_size": 131072, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
                   "head_dim": 128, "attention_dropout": 0.0, "intermediate_size": 21504, "mlp_hidden_act": "relu2",
                   "mlp_bias": False, "tie_word_embeddings": False, "ssm_state_size": 128, "mamba_num_heads": 128,
                   "mamba_head_dim": 64, "n_groups": 8, "conv_kernel": 4, "use_conv_bias": True, "use_bias": False,
                   "chunk_size": 128, "n_routed_experts": 8, "output_router_logits": False,
                   "moe_intermediate_size": 7688, "moe_shared_expert_intermediate_size": 7688,
                   "moe_latent_size": None, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1,
                   "norm_topk_prob": True},
}

RECENT_ALIASES: Mapping[str, Mapping[str, str]] = {
    "deepseek_v2": {"num_experts": "n_routed_experts"},
    "deepseek_v3": {"num_local_experts": "n_routed_experts"},
    "gpt_oss": {"num_experts": "num_local_experts"},
    "jamba": {"num_local_experts": "num_experts"},
    "nemotron_h": {"num_local_experts": "n_routed_experts"},
}
