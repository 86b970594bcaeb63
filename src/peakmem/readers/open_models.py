"""Falcon, BLOOM, MPT, Phi, GPT-BigCode, GPT-J, StarCoder2, Cohere: config.json -> keyword arguments of `Model`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peakmem.errors import Impossible
from peakmem.readers.decoders import biased, decoder
from peakmem.readers.fields import Fields
from peakmem.readers.shared import Sizes, even, head_size, refuse, rotary_part

BIASES = ("attention_bias", "output_bias", "mlp_bias")


def falcon(f: Fields) -> Sizes:
    """Falcon: one key/value head, groups of them in `new_decoder_architecture`, or as many as heads.

    In the last case and the first, num_kv_heads of the file is not read. Errors: Impossible for switches with which
    transformers' forward refers to what it never made.
    """
    hidden, heads = f.count(old_hidden(f)), f.count("num_attention_heads")
    new, alone, parallel = f.flag("new_decoder_architecture"), f.flag("multi_query"), f.flag("parallel_attn")
    groups = f.count("num_kv_heads", null=heads)
    if new and heads % groups:
        raise Impossible(f"{f.file}: {f.said('num_kv_heads')} must divide {f.said('num_attention_heads')}")
    if new and not parallel:
        raise Impossible(f"{f.file}: new_decoder_architecture is true and parallel_attn is false, which "
                         "transformers cannot run; set parallel_attn to true")
    norms = f.count("num_ln_in_parallel_attn", null=2 if new else 1, most=2)
    if not new and not alone and "num_kv_heads" in f.given and groups != heads:
        f.notes.append(f"num_kv_heads {groups} is not used: there are as many as heads")
    if not new and alone and "num_kv_heads" in f.given and groups != 1:
        f.notes.append(f"num_kv_heads {groups} is not used: multi_query has one")
    switches = {"masked"} | (set(BIASES) if f.flag("bias") else set())
    switches |= {"grouped_qkv"} if new else {"broadcast_heads", "multi_query"} if alone else set()
    if parallel:
        switches |= {"parallel_residual"} | ({"two_norms"} if new and norms == 2 else set())
    if f.flag("alibi"):
        switches |= {"alibi"}
    size = head_size(f, old_hidden(f), own=False)
    return {
        "layers": f.count("num_hidden_layers"), "hidden": hidden, "heads": heads,
        "kv_heads": groups if new else 1 if alone else heads,
        "head_size": even(f, "the head size", size), "feed_forward": f.count("ffn_hidden_size", null=4 * hidden),
        "vocabulary": f.count("vocab_size"), "tied": f.flag("tie_word_embeddings"),
        "activation": f.activation("activation"), "attention_dropout": f.fraction("attention_dropout"),
        "hidden_dropout": f.fraction("hidden_dropout"), "switches": frozenset(switches),
    }


def old_hidden(f: Fields) -> str:
    """The field with the hidden size: n_embed wins in files that have it (__post_init__ of both configurations)."""
    return "n_embed" if f.given.get("n_embed") is not None else "hidden_size"


def bloom(f: Fields) -> Sizes:
    """BLOOM: a feed-forward of 4 × hidden, whatever n_inner says; its attention is eager."""
    hidden, heads = f.count(old_hidden(f)), f.count("n_head")
    if f.flag("slow_but_exact") and f.count("pretraining_tp") > 1:
        raise Impossible(f"{f.file}: slow_but_exact with {f.said('pretraining_tp')} runs matrices in slices, which "
                         "peakmem does not know; set slow_but_exact to false")
    switches = {"eager_only", "alibi", *BIASES}
    if f.flag("apply_residual_connection_post_layernorm"):
        switches |= {"residual_after_norm"}
    return {
        "layers": f.count("n_layer"), "hidden": hidden, "heads": heads, "kv_heads": heads,
        "head_size": head_size(f, old_hidden(f), "n_head", own=False), "feed_forward": 4 * hidden,
        "vocabulary": f.count("vocab_size"), "tied": f.flag("tie_word_embeddings"), "activation": "bloom_gelu",
        "attention_dropout": f.fraction("attention_dropout"), "hidden_dropout": f.fraction("hidden_dropout"),
        "switches": frozenset(switches),
    }


def phi(f: Fields) -> Sizes:
    """Phi 1, 1.5 and 2: half of each head rotated unless the file says otherwise; a bias in the head too."""
    sizes = decoder(f, *BIASES, "head_bias")
    if f.flag("qk_layernorm"):
        sizes["switches"] |= {"qk_norm"}
    return sizes | {
        "rotary_size": rotary_part(f, sizes["head_size"], "partial_rotary_factor", 0.5, exact=True),
        "embedding_dropout": f.fraction("embd_pdrop"), "hidden_dropout": f.fraction("resid_pdrop"),
    }


PHI_MSFT: Mapping[str, str] = {
    "n_embd": "hidden_size", "n_head": "num_attention_heads", "n_head_kv": "num_key_value_heads",
    "n_layer": "num_hidden_layers", "n_inner": "intermediate_size", "activation_function": "hidden_act",
    "attn_pdrop": "attention_dropout", "n_positions": "max_position_embeddings",
    "layer_norm_epsilon": "layer_norm_eps",
}
"""Names in the files of microsoft/phi-1_5 and phi-2 from before transformers had the class, and its names."""


def phi_msft(given: Mapping[str, Any], file: str) -> dict[str, Any]:
    """A phi-msft file under today's names; what it means by null and by rotary_dim is made explicit."""
    config = {PHI_MSFT.get(name, name): value for name, value in given.items() if name != "rotary_dim"}
    config["model_type"] = "phi"
    hidden, heads, rotated = (config.get("hidden_size", 1024), config.get("num_attention_heads", 16),
                              given.get("rotary_dim", 32))
    if config.get("intermediate_size") is None and isinstance(hidden, int):
        config["intermediate_size"] = 4 * hidden
    if all(type(x) is int and x > 0 for x in (hidden, heads, rotated)) and hidden >= heads:
        size = hidden // heads
        config["partial_rotary_factor"] = (rotated + 0.5) / size if rotated < size else 1.0
    return config


def cohere(f: Fields) -> Sizes:
    """Command-R: attention beside feed-forward, norms without biases, logits multiplied."""
    sizes = biased(f, decoder(f, "scaled_logits"))
    return sizes | {"switches": sizes["switches"] | ({"qk_norm"} if f.flag("use_qk_norm", null=False) else set())}


def starcoder2(f: Fields) -> Sizes:
    """StarCoder2: one window for all layers, or null."""
    sizes = decoder(f, *(BIASES if f.flag("use_bias") else ()))
    return sizes | {"window": f.count("sliding_window", null=0),
                    "embedding_dropout": f.fraction("embedding_dropout"),
                    "hidden_dropout": f.fraction("residual_dropout")}


def gpt_bigcode(f: Fields) -> Sizes:
    """GPT-BigCode (StarCoder 1, SantaCoder): GPT-2 with one key/value head."""
    sizes = gpt_names(f)
    refuse(f, "add_cross_attention", "attention to an encoder")
    alone = f.flag("multi_query")
    return sizes | {"kv_heads": 1 if alone else sizes["heads"], "positions": f.count("n_positions"),
                    "switches": frozenset(BIASES) | ({"multi_query"} if alone else set())}


def mpt(f: Fields) -> Sizes:
    """MPT: distances for all of max_seq_len, eager attention; expansion_ratio, biases and position tables are not read.

    Errors: Impossible for clip_qkv, Unreadable where attn_config is no object.
    """
    hidden, heads = f.count("d_model"), f.count("n_heads")
    inside = f.value("attn_config") or {}
    if not isinstance(inside, dict):
        raise f.wrong("attn_config", "give an object or null")
    attention = Fields(f"{f.file}, attn_config", inside, {"attn_pdrop": 0.0})
    if attention.value("clip_qkv"):
        raise Impossible(f"{f.file}: clip_qkv limits q, k and v, which peakmem does not know; set it to null")
    dropout = attention.fraction("attn_pdrop")
    return {
        "layers": f.count("n_layers"), "hidden": hidden, "heads": heads, "kv_heads": heads,
        "head_size": head_size(f, "d_model", "n_heads", own=False), "feed_forward": 4 * hidden,
        "vocabulary": f.count("vocab_size"), "positions": f.count("max_seq_len"), "longest": f.count("max_seq_len"),
        "tied": f.flag("tie_word_embeddings"), "activation": "gelu", "attention_dropout": dropout,
        "hidden_dropout": dropout, "switches": frozenset({"eager_only", "alibi"}),
    }


def gptj(f: Fields) -> Sizes:
    """GPT-J: every second element of the first `rotary_dim` of a head is turned with its neighbour."""
    sizes = gpt_names(f)
    rotated = even(f, "rotary_dim", f.count("rotary_dim"))
    if rotated > sizes["head_size"]:
        raise Impossible(f"{f.file}: {f.said('rotary_dim')} is more than the head size {sizes['head_size']}")
    longest = f.count("n_positions")  # rows of a table that does not grow
    return sizes | {"positions": longest, "longest": longest, "rotary_size": rotated % sizes["head_size"],
                    "switches": frozenset({"mlp_bias", "head_bias"})}


def codegen(f: Fields) -> Sizes:
    """CodeGen: GPT-J whose one projection has four parts, each of queries, values and keys."""
    sizes = gptj(f)
    if sizes["heads"] % 4:
        raise Impossible(f"{f.file}: {f.said('n_head')} is no multiple of 4, the parts of CodeGen's projection")
    return sizes | {"sizes": {"mp": 4, "as": sizes["heads"] // 4}}


def gpt_names(f: Fields) -> Sizes:
    """What GPT-2's kin have in common."""
    hidden, heads = f.count("n_embd"), f.count("n_head")
    return {
        "layers": f.count("n_layer"), "hidden": hidden, "heads": heads, "kv_heads": heads,
        "head_size": head_size(f, "n_embd", "n_head", own=False),
        "feed_forward": f.count("n_inner", null=4 * hidden), "vocabulary": f.count("vocab_size"),
        "tied": f.flag("tie_word_embeddings"), "activation": f.activation("activation_function"),
        "embedding_dropout": f.fraction("embd_pdrop"), "attention_dropout": f.fraction("attn_pdrop"),
        "hidden_dropout": f.fraction("resid_pdrop"),
    }
