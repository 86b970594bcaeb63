"""Files of models whose code lies beside their weights (trust_remote_code): read as a class of the same shapes.

Their code has defaults that no version of transformers holds, so every size must stand in the file. Sources: the
configuration_*.py and modeling_*.py in the repositories named at each function, as published.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peakmem.errors import Impossible, Unreadable, printable

Config = Mapping[str, Any]

LLAMA = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")


def renamed(config: Config, file: str, kind: str, needed: tuple[str, ...], names: Mapping[str, str] | None = None,
            **fixed: Any) -> dict[str, Any]:
    """The same file for another class. needed: its own names of all sizes; names: ours for them; fixed: what its code
    assumes where the file is silent. Errors: Unreadable for a size that is not there."""
    missing = [name for name in needed if config.get(name) is None]
    if missing:
        raise Unreadable(f"{file}: {', '.join(missing)} missing: model_type {config['model_type']} has code of its "
                         "own, whose defaults peakmem does not know; give all sizes")
    names = names or {}
    return {**fixed, **{names.get(name, name): value for name, value in config.items()}, "model_type": kind}


def plain(config: Config, file: str, name: str, wanted: Any, why: str) -> None:
    """Errors: Impossible where a switch makes another network of it."""
    value = config.get(name, wanted)
    if value is not None and value != wanted:
        raise Impossible(f"{file}: {name} is {printable(value, 40)}: {why}, which peakmem does not know")


def baichuan(config: Config, file: str) -> dict[str, Any]:
    """baichuan-inc/Baichuan-7B, Baichuan2-7B and 13B: Llama with q, k, v in one matrix; 13B has ALiBi."""
    return renamed(config, file, "llama", LLAMA, num_key_value_heads=config.get("num_attention_heads"),
                   tie_word_embeddings=False)


def internlm(config: Config, file: str) -> dict[str, Any]:
    """internlm/internlm-7b and internlm2-7b: Llama; `bias` is on all four matrices of attention."""
    return renamed(config, file, "llama", LLAMA, {"bias": "attention_bias"}, tie_word_embeddings=False,
                   num_key_value_heads=config.get("num_attention_heads"))


def minicpm(config: Config, file: str) -> dict[str, Any]:
    """openbmb/MiniCPM-2B: Llama with multipliers; tied unless the file says otherwise."""
    return renamed(config, file, "llama", LLAMA, tie_word_embeddings=True,
                   num_key_value_heads=config.get("num_attention_heads"))


QWEN = {"kv_channels": "head_dim", "attn_dropout_prob": "attention_dropout", "seq_length": "max_position_embeddings",
        "layer_norm_epsilon": "rms_norm_eps"}


def qwen(config: Config, file: str) -> dict[str, Any]:
    """Qwen/Qwen-1_8B, 7B, 14B, 72B: Qwen2 without groups; half of intermediate_size is the feed-forward's width."""
    plain(config, file, "no_bias", True, "biases beyond those of q, k and v")
    made = renamed(config, file, "qwen2", LLAMA, QWEN, tie_word_embeddings=False)
    wide, heads, size = (made.get(name) for name in ("intermediate_size", "num_attention_heads", "head_dim"))
    if type(wide) is int and wide % 2:
        raise Impossible(f"{file}: intermediate_size {wide} is odd: each of two matrices has half of it")
    if type(heads) is int and type(size) is int and heads * size != made["hidden_size"]:
        raise Impossible(f"{file}: kv_channels {size} × num_attention_heads {heads} must be hidden_size")
    made.pop("head_dim", None)
    halves = {"intermediate_size": wide // 2} if type(wide) is int else {}
    return {**made, **halves, "num_key_value_heads": heads, "use_sliding_window": False}


GLM = {"ffn_hidden_size": "intermediate_size", "num_layers": "num_hidden_layers", "padded_vocab_size": "vocab_size",
       "kv_channels": "head_dim", "add_qkv_bias": "attention_bias", "seq_length": "max_position_embeddings",
       "layernorm_epsilon": "rms_norm_eps"}


def chatglm(config: Config, file: str) -> dict[str, Any]:
    """THUDM/chatglm2-6b, chatglm3-6b, glm-4-9b: GLM; as many key/value heads as multi_query_group_num."""
    for name, wanted, why in (("add_bias_linear", False, "biases in every matrix"),
                              ("rmsnorm", True, "norms with biases"), ("post_layer_norm", True, "no last norm"),
                              ("apply_residual_connection_post_layernorm", False, "another order of norms")):
        plain(config, file, name, wanted, why)
    made = renamed(config, file, "glm", ("hidden_size", "num_attention_heads", *list(GLM)[:5]), GLM,
                   tie_word_embeddings=False)
    groups = config.get("multi_query_group_num") if config.get("multi_query_attention") else None
    return {**made, "num_key_value_heads": groups or made["num_attention_heads"], "hidden_act": "silu"}
