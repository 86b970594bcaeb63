"""Presets of GLM-5, Gemma 4, Qwen3.5 and DeepSeek-V4."""

from __future__ import annotations

from peakmem.tables.models import AIC, Preset

GEMMA_4_31B = {
    "model_type": "gemma4", "tie_word_embeddings": True, "audio_config": None,
    "text_config": {
        "model_type": "gemma4_text", "hidden_size": 5376, "intermediate_size": 21504, "num_hidden_layers": 60,
        "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 256, "global_head_dim": 512,
        "num_global_key_value_heads": 4, "attention_k_eq_v": True, "hidden_size_per_layer_input": 0,
        "sliding_window": 1024, "vocab_size": 262144, "final_logit_softcapping": 30.0},
    "vision_config": {
        "model_type": "gemma4_vision", "hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27,
        "num_attention_heads": 16, "num_key_value_heads": 16, "head_dim": 72, "patch_size": 16,
        "position_embedding_size": 10240, "standardize": True}}
QWEN_3_5_27B = {
    "model_type": "qwen3_5", "tie_word_embeddings": False,
    "text_config": {
        "model_type": "qwen3_5_text", "hidden_size": 5120, "intermediate_size": 17408, "num_hidden_layers": 64,
        "num_attention_heads": 24, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 248320,
        "linear_num_value_heads": 48},
    "vision_config": {"model_type": "qwen3_5_vision", "hidden_size": 1152, "depth": 27, "out_hidden_size": 5120}}

ROWS: tuple[Preset, ...] = (
    Preset("glm-5", {"model_type": "glm_moe_dsa"}, 743911199232, f"{AIC} zai-org--GLM-5"),
    Preset("gemma-4-31b", GEMMA_4_31B, 31273086512, f"{AIC} nvidia--Gemma-4-31B-IT-NVFP4, not quantised",
           ("gemma-4-31b-it",)),
    Preset("qwen3.5-27b", QWEN_3_5_27B, 27356728560, f"{AIC} Qwen--Qwen3.5-27B"),
    Preset("deepseek-v4-flash", {
        "model_type": "deepseek_v4", "num_hash_layers": 3, "qk_rope_head_dim": 64,
        "compress_ratios": [0, 0, *[4, 128] * 20, 4]}, 284332230231, f"{AIC} deepseek-ai--DeepSeek-V4-Flash"),
)
