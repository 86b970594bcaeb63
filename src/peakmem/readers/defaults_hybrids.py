"""What transformers 5.24 assumes for decoders that mix Mamba or short convolutions with attention: see defaults.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Row = Mapping[str, Any]

_MAMBA2: Row = {"mamba_n_heads": 128, "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_head": "auto",
                "mamba_d_conv": 4, "mamba_expand": 2, "mamba_chunk_size": 256, "mamba_conv_bias": True,
                "mamba_proj_bias": False}
_BESIDE: Row = {**_MAMBA2, "vocab_size": 128000, "hidden_size": 4096, "intermediate_size": 14336,
                "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "hidden_act": "silu",
                "attention_dropout": 0.0, "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False}

HYBRIDS: Mapping[str, Row] = {
    "granitemoehybrid": {
        "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": None, "hidden_act": "silu", "attention_dropout": 0.0,
        "attention_bias": False, "tie_word_embeddings": False, "embedding_multiplier": 1.0, "residual_multiplier": 1.0,
        "attention_multiplier": 1.0, "logits_scaling": 1.0, "num_local_experts": 8, "num_experts_per_tok": 2,
        "output_router_logits": False, "shared_intermediate_size": 1024, "position_embedding_type": None,
        "layer_types": None, **_MAMBA2},
    "bamba": {**_BESIDE, "attn_layer_indices": None, "z_loss_coefficient": 0.0},
    "falcon_h1": {**_BESIDE, "mamba_d_ssm": 1024, "mamba_norm_before_gate": True, "mamba_rms_norm": False,
                  "projectors_bias": False},
    "falcon_mamba": {"vocab_size": 50280, "hidden_size": 768, "state_size": 16, "num_hidden_layers": 32, "expand": 2,
                     "conv_kernel": 4, "use_bias": False, "use_conv_bias": True, "hidden_act": "silu",
                     "residual_in_fp32": True, "time_step_rank": "auto", "tie_word_embeddings": True},
    "zamba2": {
        "vocab_size": 32000, "hidden_size": 2560, "intermediate_size": None, "num_hidden_layers": 54,
        "num_attention_heads": 32, "num_key_value_heads": None, "hidden_act": "gelu", "attention_dropout": 0.0,
        "tie_word_embeddings": True, "layers_block_type": None, "mamba_d_state": 64, "mamba_d_conv": 4,
        "mamba_expand": 2, "mamba_ngroups": 1, "n_mamba_heads": 8, "chunk_size": 256, "add_bias_linear": False,
        "num_mem_blocks": 1, "use_shared_attention_adapter": False, "adapter_rank": 128, "use_mem_rope": False},
    "lfm2": {
        "vocab_size": 65536, "hidden_size": 2560, "intermediate_size": 12288, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "tie_word_embeddings": True, "conv_bias": False,
        "conv_L_cache": 3, "block_multiple_of": 256, "block_ffn_dim_multiplier": 1.0, "block_auto_adjust_ff_dim": True,
        "full_attn_idxs": None, "layer_types": None},
    "lfm2_moe": {
        "vocab_size": 65536, "hidden_size": 2048, "intermediate_size": 7168, "moe_intermediate_size": 1792,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "tie_word_embeddings": True,
        "conv_bias": False, "conv_L_cache": 3, "num_dense_layers": 2, "num_experts_per_tok": 4, "num_experts": 32,
        "output_router_logits": False, "use_expert_bias": True, "norm_topk_prob": True, "layer_types": None},
}

HYBRID_ALIASES: Mapping[str, Mapping[str, str]] = {"zamba2": {"head_dim": "attention_head_dim"}}
