"""GPT-2, GPT-NeoX, OPT, BERT and ViT: config.json fields -> keyword arguments of `Model`."""

from __future__ import annotations

from peakmem.errors import Impossible
from peakmem.readers.fields import Fields
from peakmem.readers.shared import (
    Sizes,
    architecture,
    head_size,
    labels,
    refuse,
    rope_switches,
    rotary_part,
    side,
)

BIASES = ("attention_bias", "output_bias", "mlp_bias")


def gpt2(f: Fields) -> Sizes:
    """GPT-2; a feed-forward of 4 × hidden unless n_inner says otherwise."""
    hidden, heads = f.count("n_embd"), f.count("n_head")
    refuse(f, "add_cross_attention", "attention to an encoder")
    for name in ("scale_attn_by_inverse_layer_idx", "reorder_and_upcast_attn"):
        if f.flag(name):
            f.notes.append(f"{name} is not counted")
    return {
        "layers": f.count("n_layer"), "hidden": hidden, "heads": heads, "kv_heads": heads,
        "head_size": head_size(f, "n_embd", "n_head", own=False),
        "feed_forward": f.count("n_inner", null=4 * hidden), "vocabulary": f.count("vocab_size"),
        "positions": f.count("n_positions"), "longest": f.count("n_positions"), "tied": f.flag("tie_word_embeddings"),
        "activation": f.activation("activation_function"), "embedding_dropout": f.fraction("embd_pdrop"),
        "attention_dropout": f.fraction("attn_pdrop"), "hidden_dropout": f.fraction("resid_pdrop"),
        "switches": frozenset(BIASES),
    }


def gpt_neo(f: Fields) -> Sizes:
    """GPT-Neo: global and local layers, which differ in the contents of a buffer only; its attention is eager."""
    hidden, heads, count = f.count("hidden_size"), f.count("num_heads"), f.count("num_layers")
    groups = f.value("attention_types")
    if groups is None:
        groups = [[["global", "local"], 12]]
    if not isinstance(groups, list) or not all(
            isinstance(g, list) and len(g) == 2 and isinstance(g[0], list) and type(g[1]) is int for g in groups):
        raise f.wrong("attention_types", "give a list of pairs: a list of global and local, and how often it comes")
    if sum(len(words) * times for words, times in groups) != count:
        raise Impossible(f"{f.file}: attention_types describes {sum(len(words) * times for words, times in groups):,} "
                         f"layers, {f.said('num_layers')}; give as many")
    f.used.add("window_size")
    return {
        "layers": count, "hidden": hidden, "heads": heads, "kv_heads": heads,
        "head_size": head_size(f, heads="num_heads", own=False),
        "feed_forward": f.count("intermediate_size", null=4 * hidden), "vocabulary": f.count("vocab_size"),
        "positions": f.count("max_position_embeddings"), "longest": f.count("max_position_embeddings"),
        "tied": f.flag("tie_word_embeddings"), "activation": f.activation("activation_function"),
        "embedding_dropout": f.fraction("embed_dropout"), "attention_dropout": f.fraction("attention_dropout"),
        "hidden_dropout": f.fraction("resid_dropout"), "switches": frozenset({"eager_only", "output_bias", "mlp_bias"}),
    }


def gpt_neox(f: Fields) -> Sizes:
    """GPT-NeoX and Pythia: attention and feed-forward side by side, a quarter of each head rotated."""
    heads, size, dropout = f.count("num_attention_heads"), head_size(f, own=False), f.fraction("hidden_dropout")
    switches = {"mlp_bias"} | rope_switches(f)
    if f.flag("attention_bias"):
        switches |= {"attention_bias", "output_bias"}
    if f.flag("use_parallel_residual"):
        switches |= {"parallel_residual"}
    return {
        "layers": f.count("num_hidden_layers"), "hidden": f.count("hidden_size"), "heads": heads, "kv_heads": heads,
        "head_size": size, "feed_forward": f.count("intermediate_size"), "vocabulary": f.count("vocab_size"),
        "tied": f.flag("tie_word_embeddings"), "activation": f.activation("hidden_act"),
        "rotary_size": rotary_part(f, size, "rotary_pct", 0.25), "embedding_dropout": dropout,
        "attention_dropout": f.fraction("attention_dropout"), "hidden_dropout": dropout,
        "switches": frozenset(switches),
    }


def opt(f: Fields) -> Sizes:
    """OPT; its position table has two rows more than positions, its 350M has narrower word embeddings."""
    hidden, heads = f.count("hidden_size"), f.count("num_attention_heads")
    narrow = f.count("word_embed_proj_dim", null=hidden)
    switches = set(BIASES) if f.flag("enable_bias") else set()
    removed = f.flag("_remove_final_layer_norm")
    if f.flag("do_layer_norm_before"):
        switches |= {"norm_before"} if removed else {"norm_before", "final_norm"}
    if f.flag("layer_norm_elementwise_affine"):
        switches |= {"norm_affine"}
    if f.fraction("layerdrop"):
        f.notes.append("layerdrop is taken as 0: the step in which no layer is dropped")
    return {
        "layers": f.count("num_hidden_layers"), "hidden": hidden, "heads": heads, "kv_heads": heads,
        "head_size": head_size(f, own=False), "feed_forward": f.count("ffn_dim"),
        "vocabulary": f.count("vocab_size"), "positions": f.count("max_position_embeddings") + 2,
        "longest": f.count("max_position_embeddings"),
        "tied": f.flag("tie_word_embeddings"), "activation": f.activation("activation_function"),
        "attention_dropout": f.fraction("attention_dropout"), "hidden_dropout": f.fraction("dropout"),
        "switches": frozenset(switches), "sizes": {"e": narrow} if narrow != hidden else {},
    }


def bert(f: Fields) -> Sizes:
    """BERT with its masked language model head. `pooler`: the class that the file names has a pooler instead."""
    heads, dropout = f.count("num_attention_heads"), f.fraction("hidden_dropout_prob")
    if "is_decoder" in f.defaults:
        refuse(f, "add_cross_attention", "attention to an encoder")
        refuse(f, "is_decoder", "causal attention in BERT")
    switches, name = set(BIASES), architecture(f)
    if name.removesuffix("Model") in ("Bert", "Roberta", "XLMRoberta", "Camembert", "MPNet") and name.endswith("Model"):
        switches |= {"pooler"}
        f.notes.append(f"{name} is trained as {name.removesuffix('Model')}ForMaskedLM, with the head and without the "
                       "pooler; --run inference is the class itself")
    return {
        "layers": f.count("num_hidden_layers"), "hidden": f.count("hidden_size"), "heads": heads, "kv_heads": heads,
        "head_size": head_size(f, own=False), "feed_forward": f.count("intermediate_size"),
        "vocabulary": f.count("vocab_size"), "positions": f.count("max_position_embeddings"),
        "longest": f.count("max_position_embeddings"),
        "token_types": f.count("type_vocab_size") if "type_vocab_size" in f.defaults else 0,
        "tied": f.flag("tie_word_embeddings"),
        "activation": f.activation("hidden_act"), "embedding_dropout": dropout,
        "attention_dropout": f.fraction("attention_probs_dropout_prob"), "hidden_dropout": dropout,
        "switches": frozenset(switches),
    }


def roberta(f: Fields) -> Sizes:
    """RoBERTa: as BERT; positions begin behind the padding token's number."""
    sizes = bert(f)
    longest = sizes["positions"] - f.count("pad_token_id", least=0) - 1
    if longest < 1:
        raise Impossible(f"{f.file}: {f.said('max_position_embeddings')} leaves no positions behind "
                         f"{f.said('pad_token_id')}")
    return sizes | {"longest": longest}


def vit(f: Fields, feed_forward: int = 0) -> Sizes:
    """ViT for image classification: square images, square patches, one class token.

    feed_forward: where it is no field.
    """
    heads, dropout = f.count("num_attention_heads"), f.fraction("hidden_dropout_prob")
    image, patch = side(f, "image_size"), side(f, "patch_size")
    if patch > image:
        raise Impossible(f"{f.file}: {f.said('patch_size')} is larger than {f.said('image_size')}")
    return {
        "layers": f.count("num_hidden_layers"), "hidden": f.count("hidden_size"), "heads": heads, "kv_heads": heads,
        "head_size": head_size(f), "feed_forward": feed_forward or f.count("intermediate_size"),
        "positions": (image // patch) ** 2 + 1, "activation": f.activation("hidden_act"),
        "image": image, "patch": patch, "channels": f.count("num_channels"), "classes": labels(f),
        "embedding_dropout": dropout, "hidden_dropout": dropout,
        "attention_dropout": f.fraction("attention_probs_dropout_prob"),
        "switches": frozenset({"output_bias", "mlp_bias"} | ({"attention_bias"} if f.flag("qkv_bias") else set())),
    }
