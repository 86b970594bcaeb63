"""What transformers 5.24 assumes where a config.json is silent: `models/*/configuration_*.py`, class by class.

Only fields that a size, a tensor or a lifetime depends on. A test compares every entry with the classes themselves.
None: the field may be null, and then follows from others.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peakmem.readers.defaults_encoders import ENCODER_ALIASES, ENCODERS
from peakmem.readers.defaults_hybrids import HYBRID_ALIASES, HYBRIDS
from peakmem.readers.defaults_kin import KIN, KIN_ALIASES
from peakmem.readers.defaults_llama_kin import LLAMA_KIN, LLAMA_KIN_ALIASES
from peakmem.readers.defaults_pictures import PICTURES
from peakmem.readers.defaults_recent import RECENT, RECENT_ALIASES
from peakmem.readers.defaults_towers import TOWER_ALIASES, TOWERS

Row = Mapping[str, Any]

_DECODER: Row = {"num_hidden_layers": 32, "num_attention_heads": 32, "hidden_act": "silu",
                 "attention_dropout": 0.0, "tie_word_embeddings": False}
_QWEN: Row = {**_DECODER, "vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016,
              "num_key_value_heads": 32, "use_sliding_window": False, "sliding_window": 4096,
              "max_window_layers": 28, "layer_types": None}
_GPTJ: Row = {"vocab_size": 50400, "n_positions": 2048, "n_embd": 4096, "n_layer": 28, "n_head": 16, "rotary_dim": 64,
              "n_inner": None, "activation_function": "gelu_new", "resid_pdrop": 0.0, "embd_pdrop": 0.0,
              "attn_pdrop": 0.0, "tie_word_embeddings": False}
_GEMMA: Row = {"vocab_size": 256000, "head_dim": 256, "attention_dropout": 0.0, "attention_bias": False,
               "tie_word_embeddings": True, "use_bidirectional_attention": None}
_GEMMA2: Row = {**_GEMMA, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
                "num_attention_heads": 8, "num_key_value_heads": 4, "hidden_activation": "gelu_pytorch_tanh",
                "sliding_window": 4096, "layer_types": None}

DEFAULTS: Mapping[str, Row] = {
    "llama": {**_DECODER, "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
              "num_key_value_heads": None, "head_dim": None, "attention_bias": False, "mlp_bias": False},
    "granite": {**_DECODER, "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008,
                "num_key_value_heads": None, "head_dim": None, "attention_bias": False, "mlp_bias": False,
                "embedding_multiplier": 1.0, "residual_multiplier": 1.0, "attention_multiplier": 1.0,
                "logits_scaling": 1.0},
    "mistral": {**_DECODER, "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336,
                "num_key_value_heads": 8, "head_dim": None, "sliding_window": 4096},
    "qwen2": _QWEN,
    "qwen3": {**_QWEN, "head_dim": 128, "attention_bias": False},
    "phi3": {**_DECODER, "vocab_size": 32064, "hidden_size": 3072, "intermediate_size": 8192,
             "num_key_value_heads": None, "resid_pdrop": 0.0, "sliding_window": None},
    "gemma": {**_GEMMA, "hidden_size": 3072, "intermediate_size": 24576, "num_hidden_layers": 28,
              "num_attention_heads": 16, "num_key_value_heads": 16, "hidden_act": "gelu_pytorch_tanh"},
    "gemma2": {**_GEMMA2, "final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0},
    "gemma3_text": {**_GEMMA2, "vocab_size": 262208, "use_bidirectional_attention": False,
                    "final_logit_softcapping": None, "attn_logit_softcapping": None},
    "mixtral": {**_DECODER, "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336,
                "num_key_value_heads": 8, "head_dim": None, "sliding_window": None, "num_experts_per_tok": 2,
                "num_local_experts": 8, "output_router_logits": False},
    "qwen3_moe": {**_DECODER, "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 6144,
                  "num_hidden_layers": 24, "num_key_value_heads": 4, "attention_bias": False,
                  "use_sliding_window": False, "sliding_window": 4096, "decoder_sparse_step": 1,
                  "moe_intermediate_size": 768, "num_experts_per_tok": 8, "num_experts": 128,
                  "norm_topk_prob": False, "output_router_logits": False, "mlp_only_layers": None},
    "olmo2": {**_DECODER, "vocab_size": 50304, "hidden_size": 4096, "intermediate_size": 11008,
              "num_key_value_heads": None, "attention_bias": False},
    "stablelm": {**_DECODER, "vocab_size": 50304, "hidden_size": 2560, "intermediate_size": 6912,
                 "num_key_value_heads": 32, "use_qkv_bias": False, "qk_layernorm": False,
                 "use_parallel_residual": False, "hidden_dropout": 0.0},
    "falcon": {"vocab_size": 65024, "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71,
               "num_ln_in_parallel_attn": None, "hidden_dropout": 0.0, "attention_dropout": 0.0, "num_kv_heads": None,
               "alibi": False, "new_decoder_architecture": False, "multi_query": True, "parallel_attn": True,
               "bias": False, "ffn_hidden_size": None, "activation": "gelu", "tie_word_embeddings": True},
    "bloom": {"vocab_size": 250880, "hidden_size": 64, "n_layer": 2, "n_head": 8, "hidden_dropout": 0.0,
              "attention_dropout": 0.0, "apply_residual_connection_post_layernorm": False, "pretraining_tp": 1,
              "slow_but_exact": False, "tie_word_embeddings": True},
    "phi": {**_DECODER, "vocab_size": 51200, "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 24,
            "num_key_value_heads": None, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "hidden_act": "gelu_new",
            "qk_layernorm": False},
    "cohere": {**_DECODER, "vocab_size": 256000, "hidden_size": 8192, "intermediate_size": 22528,
               "num_hidden_layers": 40, "num_attention_heads": 64, "num_key_value_heads": None,
               "tie_word_embeddings": True, "attention_bias": False, "use_qk_norm": False},
    "starcoder2": {**_DECODER, "vocab_size": 49152, "hidden_size": 3072, "intermediate_size": 12288,
                   "num_hidden_layers": 30, "num_attention_heads": 24, "num_key_value_heads": 2,
                   "hidden_act": "gelu_pytorch_tanh", "sliding_window": None, "residual_dropout": 0.0,
                   "embedding_dropout": 0.0, "use_bias": True, "tie_word_embeddings": True},
    "gpt_bigcode": {"vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12,
                    "n_inner": None, "activation_function": "gelu_pytorch_tanh", "resid_pdrop": 0.1,
                    "embd_pdrop": 0.1, "attn_pdrop": 0.1, "multi_query": True, "add_cross_attention": False,
                    "tie_word_embeddings": True},
    "gptj": _GPTJ, "codegen": _GPTJ,
    **RECENT,
    **HYBRIDS,
    **KIN,
    **ENCODERS,
    **LLAMA_KIN,
    **TOWERS, **PICTURES,
    "mpt": {"d_model": 2048, "n_heads": 16, "n_layers": 24, "max_seq_len": 2048, "vocab_size": 50368,
            "attn_config": None, "tie_word_embeddings": True},
    "gpt2": {"vocab_size": 50257, "n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12, "n_inner": None,
             "activation_function": "gelu_new", "resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1,
             "scale_attn_by_inverse_layer_idx": False, "reorder_and_upcast_attn": False,
             "add_cross_attention": False, "tie_word_embeddings": True},
    "gpt_neo": {"vocab_size": 50257, "max_position_embeddings": 2048, "hidden_size": 2048, "num_layers": 24,
                "attention_types": None, "num_heads": 16, "intermediate_size": None, "activation_function": "gelu_new",
                "resid_dropout": 0.0, "embed_dropout": 0.0, "attention_dropout": 0.0, "tie_word_embeddings": True},
    "gpt_neox": {"vocab_size": 50432, "hidden_size": 6144, "num_hidden_layers": 44, "num_attention_heads": 64,
                 "intermediate_size": 24576, "hidden_act": "gelu", "attention_dropout": 0.0, "hidden_dropout": 0.0,
                 "tie_word_embeddings": False, "use_parallel_residual": True, "attention_bias": True},
    "opt": {"vocab_size": 50272, "hidden_size": 768, "num_hidden_layers": 12, "ffn_dim": 3072,
            "max_position_embeddings": 2048, "do_layer_norm_before": True, "_remove_final_layer_norm": False,
            "word_embed_proj_dim": None, "dropout": 0.1, "attention_dropout": 0.0, "num_attention_heads": 12,
            "activation_function": "relu", "layerdrop": 0.0, "enable_bias": True,
            "layer_norm_elementwise_affine": True, "tie_word_embeddings": True},
    "bert": {"vocab_size": 30522, "hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12,
             "intermediate_size": 3072, "hidden_act": "gelu", "hidden_dropout_prob": 0.1,
             "attention_probs_dropout_prob": 0.1, "max_position_embeddings": 512, "type_vocab_size": 2,
             "is_decoder": False, "add_cross_attention": False, "tie_word_embeddings": True},
    "vit": {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072,
            "hidden_act": "gelu", "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
            "image_size": 224, "patch_size": 16, "num_channels": 3, "qkv_bias": True},
}

_GPT2_NAMES = {"hidden_size": "n_embd", "max_position_embeddings": "n_positions", "num_attention_heads": "n_head",
               "num_hidden_layers": "n_layer"}

ALIASES: Mapping[str, Mapping[str, str]] = {
    "gpt2": _GPT2_NAMES, "gpt_bigcode": _GPT2_NAMES, "gptj": _GPT2_NAMES, "codegen": _GPT2_NAMES,
    "gpt_neo": {"num_attention_heads": "num_heads", "num_hidden_layers": "num_layers"},
    "bloom": {"num_hidden_layers": "n_layer", "num_attention_heads": "n_head"},
    "mpt": {"hidden_size": "d_model", "num_hidden_layers": "n_layers", "num_attention_heads": "n_heads"},
    **RECENT_ALIASES,
    **HYBRID_ALIASES,
    **KIN_ALIASES,
    **ENCODER_ALIASES,
    **LLAMA_KIN_ALIASES,
    **TOWER_ALIASES,
    "mixtral": {"num_experts": "num_local_experts"},
    "qwen3_moe": {"num_local_experts": "num_experts"},
}
"""Names that transformers takes for others (`attribute_map`)."""

_HARMLESS = """
architectures model_type transformers_version _name_or_path name_or_path _commit_hash auto_map torch_dtype dtype
bos_token_id eos_token_id pad_token_id sep_token_id cls_token_id mask_token_id unk_token_id
decoder_start_token_id initializer_range initializer_factor init_std rms_norm_eps layer_norm_eps
layer_norm_epsilon use_cache return_dict output_hidden_states output_attentions torchscript use_bfloat16
pretraining_tp max_position_embeddings n_ctx max_sequence_length max_length rope_theta rope_scaling
rope_parameters rope_local_base_freq rotary_emb_base original_max_position_embeddings id2label label2id
num_labels problem_type query_pre_attn_scalar cache_implementation task_specific_params summary_activation
summary_first_dropout summary_proj_to_labels summary_type summary_use_proj scale_attn_weights
router_aux_loss_coef router_jitter_noise classifier_dropout classifier_dropout_prob gradient_checkpointing
position_embedding_type is_encoder_decoder is_decoder encoder_stride attn_implementation _attn_implementation
activation_dropout embd_pdrop hidden_activation hidden_act model_max_length use_mrope tokenizer_class prefix
pruned_heads finetuning_task license language directionality pooler_fc_size pooler_num_attention_heads
pooler_num_fc_layers pooler_size_per_head pooler_type generation_config repetition_penalty temperature top_k
top_p do_sample vision_config boi_token_index eoi_token_index image_token_index mm_tokens_per_image text_config
qa_dropout seq_classif_dropout summary_last_dropout norm_eps initializer_cutoff_factor global_rope_theta
local_rope_theta classifier_pooling reference_compile deterministic_flash_attn sparse_pred_ignore_index layerscale_value
logit_scale moe_norm_min apply_layernorm reshape_hidden_states out_features out_indices stage_names
pooler_output_size pooler_act head_dim max_window_layers sliding_window chunk_size_feed_forward
"""
HARMLESS = frozenset(_HARMLESS.split())
"""Fields that change no size, or that a family reads or leaves out for a reason of its own."""
