"""What diffusers 0.42 assumes where a file is silent: see defaults.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

UNET: Mapping[str, Any] = {
    "sample_size": None, "in_channels": 4, "out_channels": 4, "center_input_sample": False, "flip_sin_to_cos": True,
    "freq_shift": 0, "downsample_padding": 1, "mid_block_scale_factor": 1, "norm_eps": 1e-5,
    "down_block_types": ("CrossAttnDownBlock2D",) * 3 + ("DownBlock2D",), "mid_block_type": "UNetMidBlock2DCrossAttn",
    "up_block_types": ("UpBlock2D",) + ("CrossAttnUpBlock2D",) * 3, "only_cross_attention": False,
    "block_out_channels": (320, 640, 1280, 1280), "layers_per_block": 2, "dropout": 0.0, "act_fn": "silu",
    "norm_num_groups": 32, "cross_attention_dim": 1280, "transformer_layers_per_block": 1,
    "reverse_transformer_layers_per_block": None, "encoder_hid_dim": None, "encoder_hid_dim_type": None,
    "attention_head_dim": 8, "num_attention_heads": None, "dual_cross_attention": False,
    "use_linear_projection": False, "class_embed_type": None, "addition_embed_type": None,
    "addition_time_embed_dim": None, "num_class_embeds": None, "upcast_attention": False,
    "resnet_time_scale_shift": "default", "resnet_skip_time_act": False, "resnet_out_scale_factor": 1.0,
    "time_embedding_type": "positional", "time_embedding_dim": None, "time_embedding_act_fn": None,
    "timestep_post_act": None, "time_cond_proj_dim": None, "conv_in_kernel": 3, "conv_out_kernel": 3,
    "projection_class_embeddings_input_dim": None, "attention_type": "default", "class_embeddings_concat": False,
    "mid_block_only_cross_attention": None, "cross_attention_norm": None, "addition_embed_type_num_heads": 64,
}
DIT: Mapping[str, Any] = {
    "num_attention_heads": 16, "attention_head_dim": 72, "in_channels": 4, "out_channels": None, "num_layers": 28,
    "dropout": 0.0, "norm_num_groups": 32, "attention_bias": True, "sample_size": 32, "patch_size": 2,
    "activation_fn": "gelu-approximate", "num_embeds_ada_norm": 1000, "upcast_attention": False,
    "norm_type": "ada_norm_zero", "norm_elementwise_affine": False, "norm_eps": 1e-5,
}
