"""Decoders with a recurrent state: Qwen3-Next and Qwen3.5, Mamba, Mamba 2, Jamba, Nemotron-H."""

from __future__ import annotations

from collections.abc import Mapping

from peakmem.errors import Impossible
from peakmem.readers.decoders import decoder, router
from peakmem.readers.fields import Fields
from peakmem.readers.shared import Sizes, even, experts, kv_heads, layers, rotary_part

LINEAR: Mapping[str, str] = {"full_attention": "full", "linear_attention": "linear"}
PATTERN: Mapping[str, str] = {"M": "mamba", "E": "moe", "*": "full", "-": "mlp"}
BLOCKS: Mapping[str, str] = {"linear_attention": "mamba", "mamba": "mamba", "moe": "moe", "full_attention": "full",
                             "attention": "full", "mlp": "mlp"}


def delta_net(f: Fields) -> Sizes:
    """What Qwen3-Next and Qwen3.5 share: three layers with a state, then one with attention."""
    sizes, count = decoder(f, "qk_norm"), layers(f)
    f.notes.append("the delta net as transformers' own PyTorch code runs it, without the packages fla and "
                   "causal-conv1d: their kernels keep less")
    if f.flag("attention_bias"):
        sizes["switches"] |= {"attention_bias", "output_bias"}
    every = f.count("full_attention_interval", null=4)
    kinds = f.kinds("layer_types", count, LINEAR) or tuple("linear" if i % every else "full"
                                                           for i in range(1, count + 1))
    keys, values = f.count("linear_num_key_heads"), f.count("linear_num_value_heads")
    if values % keys:
        raise Impossible(f"{f.file}: {f.said('linear_num_key_heads')} must divide "
                         f"{f.said('linear_num_value_heads')}")
    if keys < values:
        sizes["switches"] |= {"grouped_values"}
    key_size, value_size = f.count("linear_key_head_dim"), f.count("linear_value_head_dim")
    rotated = rotary_part(f, sizes["head_size"], "partial_rotary_factor", 0.25)
    rotated = even(f, "the rotated part of a head", rotated) if rotated else 0
    return sizes | {"layer_kinds": kinds, "rotary_size": rotated,
                    "sizes": {"ak": keys, "av": values, "rv": values // keys, "ek": key_size, "ev": value_size,
                              "cc": 2 * keys * key_size + values * value_size,
                              "q": f.count("linear_conv_kernel_dim")}}


def qwen3_next(f: Fields) -> Sizes:
    """Qwen3-Next: experts in every `decoder_sparse_step`th layer, and one that every token meets."""
    sizes = delta_net(f) | experts(f, "num_experts", least=0)
    sizes["switches"] |= {*router(f), *(("norm_topk",) if f.flag("norm_topk_prob") else ())}
    step, dense = f.count("decoder_sparse_step"), f.value("mlp_only_layers") or []
    if not isinstance(dense, list) or not all(type(i) is int for i in dense):
        raise f.wrong("mlp_only_layers", "give a list of layer numbers")
    sizes["sizes"]["y"] = f.count("shared_expert_intermediate_size")
    skipped = frozenset(dense)
    kinds = tuple(kind if sizes["experts"] and i not in skipped and not (i + 1) % step else f"{kind}, dense"
                  for i, kind in enumerate(sizes["layer_kinds"]))
    return sizes | {"layer_kinds": kinds, "expert_feed_forward": f.count("moe_intermediate_size")}


def qwen3_5(f: Fields) -> Sizes:
    """Qwen3.5's text part: dense, with projections of their own for the delta net's gate."""
    return delta_net(f)


def qwen3_5_moe(f: Fields) -> Sizes:
    """Qwen3.5's mixtures, their text part: every feed-forward is experts, and one that every token meets."""
    f.given["intermediate_size"] = f.count("moe_intermediate_size")
    sizes = delta_net(f) | experts(f, "num_experts")
    sizes["switches"] |= {"norm_topk", *router(f)}
    sizes["sizes"]["y"] = f.count("shared_expert_intermediate_size")
    return sizes | {"expert_feed_forward": sizes["feed_forward"]}


SCAN = ("Mamba layers as transformers' own PyTorch code runs them, {}, without the packages mamba-ssm and "
        "causal-conv1d: their kernels keep much less")


def mamba(f: Fields) -> Sizes:
    """Mamba 1: no attention at all."""
    f.notes.append(SCAN.format("token by token"))
    hidden = f.count("hidden_size")
    switches = {switch for field, switch in (("use_bias", "mixer_bias"), ("use_conv_bias", "conv_bias"),
                                             ("residual_in_fp32", "fp32_residual")) if f.flag(field)}
    rank = -(-hidden // 16) if f.value("time_step_rank") == "auto" else f.count("time_step_rank")
    inner = f.count("expand", most=10**3) * hidden
    if "intermediate_size" in f.given:  # the class sets what a file gives after what it computes
        inner = f.count("intermediate_size")
    return {
        "layers": f.count("num_hidden_layers"), "hidden": hidden, "heads": 1, "kv_heads": 1, "head_size": 1,
        "feed_forward": inner, "vocabulary": f.count("vocab_size"), "tied": f.flag("tie_word_embeddings"),
        "activation": f.activation("hidden_act"), "switches": frozenset({*switches, "float_logits", "eager_only"}),
        "sizes": {"l": inner, "o": f.count("state_size"), "q": f.count("conv_kernel"), "R": rank}}


def mamba2(f: Fields) -> Sizes:
    """Mamba 2: no attention at all; heads with a state each, in groups that share B and C."""
    f.notes.append(SCAN.format("in chunks"))
    hidden, heads, size = f.count("hidden_size"), f.count("num_heads"), f.count("head_dim")
    groups = f.count("n_groups")
    if f.count("expand", most=10**3) * hidden != heads * size:
        raise Impossible(f"{f.file}: {f.said('expand')} times {f.said('hidden_size')} must be {f.said('num_heads')} "
                         f"times {f.said('head_dim')}")
    if heads % groups:
        raise Impossible(f"{f.file}: {f.said('n_groups')} must divide {f.said('num_heads')}")
    if f.activation("hidden_act") != "silu":
        raise f.wrong("hidden_act", "peakmem knows silu in Mamba 2")
    switches = {switch for field, switch in (("use_bias", "mixer_bias"), ("use_conv_bias", "conv_bias"),
                                             ("residual_in_fp32", "fp32_residual")) if f.flag(field)}
    return {
        "layers": f.count("num_hidden_layers"), "hidden": hidden, "heads": 1, "kv_heads": 1, "head_size": 1,
        "feed_forward": heads * size, "vocabulary": f.count("vocab_size"), "tied": f.flag("tie_word_embeddings"),
        "activation": "silu", "switches": frozenset({*switches, "float_logits", "eager_only"}),
        "sizes": {"am": heads, "rm": heads // groups, "em": size, "Gm": groups, "o": f.count("state_size"),
                  "q": f.count("conv_kernel"), "cm": f.count("chunk_size")}}


def jamba(f: Fields) -> Sizes:
    """Jamba: Mamba layers, one in eight with attention, and experts in every other layer."""
    f.notes.append(SCAN.format("token by token"))
    sizes = {**decoder(f, *router(f), turned=False), **experts(f, "num_experts")}
    every, at = f.count("attn_layer_period"), f.count("attn_layer_offset", least=0)
    sparse, first = f.count("expert_layer_period"), f.count("expert_layer_offset", least=0)
    for offset, period in (("attn_layer_offset", "attn_layer_period"), ("expert_layer_offset", "expert_layer_period")):
        if f.count(offset, least=0) >= f.count(period):
            raise Impossible(f"{f.file}: {f.said(offset)} must be smaller than {f.said(period)}")
    kinds = tuple(("full" if i % every == at else "mamba")
                  + ("" if sizes["experts"] > 1 and i % sparse == first else ", dense") for i in range(layers(f)))
    for field, switch in (("mamba_proj_bias", "mixer_bias"), ("mamba_conv_bias", "conv_bias")):
        if f.flag(field):
            sizes["switches"] |= {switch}
    hidden = sizes["hidden"]
    rank = -(-hidden // 16) if f.value("mamba_dt_rank") == "auto" else f.count("mamba_dt_rank")
    return sizes | {"layer_kinds": kinds, "expert_feed_forward": sizes["feed_forward"],
                    "sizes": {"l": f.count("mamba_expand", most=10**3) * hidden, "o": f.count("mamba_d_state"),
                              "q": f.count("mamba_d_conv"), "R": rank}}


def nemotron_h(f: Fields) -> Sizes:
    """Nemotron-H: each layer is one of Mamba 2, attention, experts or a plain feed-forward."""
    f.notes.append(SCAN.format("in chunks"))
    pattern = f.value("hybrid_override_pattern")
    listed = f.value("layer_types" if "layer_types" in f.given else "layers_block_type")
    words = [PATTERN.get(c, c) for c in pattern] if listed is None and isinstance(pattern, str) else listed
    if words is None:
        words = ["linear_attention", "moe", "full_attention", "mlp"]
    if not isinstance(words, list) or not words or len(words) > 10**6:
        raise f.wrong("layers_block_type", "give a list with one word for each layer")
    kinds = tuple(BLOCKS.get(word, word) if isinstance(word, str) else "" for word in words)
    if not set(kinds) <= set(PATTERN.values()):
        raise f.wrong("layers_block_type" if listed is not None else "hybrid_override_pattern",
                      "layers are Mamba (M), experts (E), attention (*) or a feed-forward (-)")
    if f.given.get("num_hidden_layers") is not None and f.count("num_hidden_layers") != len(kinds):
        said = "hybrid_override_pattern" if listed is None and pattern is not None else "layers_block_type"
        raise Impossible(f"{f.file}: {said} has {len(kinds):,} layers{'' if said in f.given else ' by default'}, "
                         f"{f.said('num_hidden_layers')}; give one letter or word for each layer")
    heads = f.count("num_attention_heads")
    chosen = experts(f, "n_routed_experts")
    inner, groups = f.count("mamba_num_heads"), f.count("n_groups")
    if inner % groups or chosen["experts"] % f.count("n_group"):
        raise Impossible(f"{f.file}: {f.said('n_groups')} must divide {f.said('mamba_num_heads')}, and "
                         f"{f.said('n_group')} {f.said('n_routed_experts')}")
    switches = {switch for field, switch in (("use_bias", "mixer_bias"), ("use_conv_bias", "conv_bias"),
                                             ("mlp_bias", "mlp_bias"), ("norm_topk_prob", "norm_topk"))
                if f.flag(field)}
    if f.activation("mamba_hidden_act") != "silu":
        raise f.wrong("mamba_hidden_act", "peakmem knows silu in Mamba 2")
    if f.value("moe_latent_size") is not None:
        switches |= {"expert_latent"}
    return chosen | {
        "layers": len(kinds), "layer_kinds": kinds, "hidden": f.count("hidden_size"), "heads": heads,
        "kv_heads": kv_heads(f, heads), "head_size": f.count("head_dim"), "feed_forward": f.count("intermediate_size"),
        "expert_feed_forward": f.count("moe_intermediate_size"), "vocabulary": f.count("vocab_size"),
        "tied": False, "activation": f.activation("mlp_hidden_act"),
        "attention_dropout": f.fraction("attention_dropout"),
        "switches": frozenset({*switches, "correction_bias", "float_logits"}),
        "sizes": {"am": inner, "rm": inner // groups, "em": f.count("mamba_head_dim"), "Gm": groups,
                  "o": f.count("ssm_state_size"),
                  "q": f.count("conv_kernel"), "y": f.count("moe_shared_expert_intermediate_size"),
                  "lx": f.count("moe_latent_size", null=0), "G": f.count("n_group"), "Kg": f.count("topk_group"),
                  "cm": f.count("chunk_size")}}
