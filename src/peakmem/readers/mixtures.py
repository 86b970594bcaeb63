"""Decoders with many experts: DeepSeek-V2 and V3 (and Kimi-K2), gpt-oss, Llama 4."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peakmem.errors import Impossible
from peakmem.readers.decoders import router
from peakmem.readers.fields import Fields
from peakmem.readers.shared import (
    KINDS,
    Sizes,
    even,
    experts,
    kv_heads,
    layers,
    refuse,
    rope_switches,
    windowed,
)

CHUNKS: Mapping[str, str] = {"full_attention": "full", "chunked_attention": "chunked"}


def base(f: Fields, *switches: str) -> Sizes:
    """What all of them have in common, without heads."""
    for kind in rope_switches(f):
        raise Impossible(f"{f.file}: rotary positions of type {kind.removesuffix('_rope')} are not known for "
                         f"{f.given.get('model_type')}; give default, linear, llama3 or yarn")
    return {
        "layers": f.count("num_hidden_layers"), "hidden": f.count("hidden_size"),
        "vocabulary": f.count("vocab_size"), "tied": f.flag("tie_word_embeddings"),
        "activation": f.activation("hidden_act"), "attention_dropout": f.fraction("attention_dropout"),
        "switches": frozenset(switches),
    }


def latent(f: Fields, *switches: str) -> Sizes:
    """DeepSeek's attention, its dense first layers, its experts."""
    heads = f.count("num_attention_heads")
    plain, turned = f.count("qk_nope_head_dim"), even(f, "qk_rope_head_dim", f.count("qk_rope_head_dim"))
    ranks = {"lk": f.count("kv_lora_rank"), "lq": f.count("q_lora_rank", null=0)}
    mixed = grouped_experts(f)
    sizes = base(f, *switches) | mixed | {
        "heads": heads, "kv_heads": heads, "head_size": plain + turned, "feed_forward": f.count("intermediate_size"),
        "sizes": {**ranks, **mixed["sizes"], "dn": plain, "dr": turned, "dv": f.count("v_head_dim")}}
    for field, switch in (("attention_bias", "attention_bias"), ("q_lora_rank", "query_latent")):
        if f.value(field):
            sizes["switches"] |= {switch}
    f.used.add("num_key_value_heads")
    kept, whole = ranks["lk"] + turned, heads * (plain + turned + f.count("v_head_dim"))
    f.notes.append(f"the cache holds latents, {kept:,} numbers a token and layer, as transformers 5.24 does; an engine "
                   f"that caches whole keys and values holds {whole:,}")
    return sizes | first_dense(f, sizes)


def grouped_experts(f: Fields, always: bool = True) -> Sizes:
    """Experts in groups, chosen by groups first; always: some that every token meets. Errors: Impossible."""
    chosen, expert = experts(f, "n_routed_experts"), f.count("moe_intermediate_size")
    shared = f.count("n_shared_experts", least=0, null=0) if always else 0
    groups = {"G": f.count("n_group", null=1), "Kg": f.count("topk_group", null=1)}
    if chosen["experts"] % groups["G"] or groups["Kg"] > groups["G"]:
        raise Impossible(f"{f.file}: {f.said('n_group')} must divide {f.said('n_routed_experts')}, and "
                         f"{f.said('topk_group')} of the groups are chosen")
    refuse(f, "output_router_logits", "the logits of every router are then handed out")
    if not shared and always:
        raise Impossible(f"{f.file}: {f.said('n_shared_experts')}: transformers' class always has shared experts")
    return chosen | {"expert_feed_forward": expert, "sizes": groups | ({"y": expert * shared} if always else {})}


def prediction_layers(f: Fields) -> None:
    """What files call layers for multi-token prediction is only noted."""
    more = f.count("num_mtp_layers" if "num_mtp_layers" in f.given else "num_nextn_predict_layers", least=0, null=0)
    if more:
        f.notes.append(f"{more} layer{'s' if more > 1 else ''} for multi-token prediction in the file's weights: "
                       "transformers' class does not have them, and they are not counted")


def first_dense(f: Fields, sizes: Sizes) -> Sizes:
    """Dense layers first, then sparse ones; said once where all are alike. Errors: Impossible."""
    dense, count = f.count("first_k_dense_replace", least=0, null=0), sizes["layers"]
    listed = f.value("moe_layer_freq")
    if isinstance(listed, list) and len(listed) != count:
        raise Impossible(f"{f.file}: moe_layer_freq has {len(listed):,} entries, num_hidden_layers is {count:,}; give "
                         "one entry for each layer")
    if listed not in (None, 1):
        f.notes.append("moe_layer_freq is not used: transformers' class does not read it")
    if dense > count:
        raise Impossible(f"{f.file}: {f.said('first_k_dense_replace')} is more than {f.said('num_hidden_layers')}")
    if not dense:
        return {}
    return {"layer_kinds": ("dense",) * dense + ("moe",) * (layers(f) - dense)}


def deepseek_v2(f: Fields) -> Sizes:
    """DeepSeek-V2 and V2-Lite: softmax over the experts, the largest of all or of chosen groups."""
    sizes = latent(f)
    method = f.value("topk_method")
    if method not in ("greedy", "group_limited_greedy"):
        raise f.wrong("topk_method", "give greedy or group_limited_greedy")
    if method == "group_limited_greedy":
        sizes["switches"] |= {"expert_groups"}
    if f.flag("mlp_bias"):
        sizes["switches"] |= {"mlp_bias"}
    f.used.add("norm_topk_prob")
    return sizes


def deepseek_v3(f: Fields) -> Sizes:
    """DeepSeek-V3, R1 and Kimi-K2: sigmoid scores with a correction, groups of experts."""
    sizes = latent(f, "correction_bias")
    for field, switch in (("norm_topk_prob", "norm_topk"), ("rope_interleave", "interleaved_rope")):
        if f.flag(field, null=False):
            sizes["switches"] |= {switch}
    prediction_layers(f)
    return sizes


def glm4_moe_lite(f: Fields) -> Sizes:
    """GLM-4.7-Flash: DeepSeek-V3 whose dense layers, the first one unless the file says otherwise, are listed."""
    count = layers(f)
    f.used.add("first_k_dense_replace")
    kinds = f.kinds("mlp_layer_types", count, {"dense": "dense", "sparse": "moe"})
    sizes = deepseek_v3(f)
    kinds = kinds or ("dense", *("moe",) * (count - 1))
    return sizes | {"layer_kinds": kinds if "dense" in kinds else ()}


def gpt_oss(f: Fields) -> Sizes:
    """gpt-oss: sinks beside the scores, sliding and full layers in turn, experts with biases."""
    heads, count = f.count("num_attention_heads"), layers(f)
    sizes = base(f, "eager_only", *router(f)) | experts(f, "num_local_experts")
    size = f.count("intermediate_size")
    kinds = f.kinds("layer_types", count, KINDS) or tuple("full" if i % 2 else "sliding" for i in range(count))
    if f.flag("attention_bias"):
        sizes["switches"] |= {"attention_bias", "output_bias"}
    return sizes | {"heads": heads, "kv_heads": kv_heads(f, heads), "feed_forward": size, "expert_feed_forward": size,
                    "head_size": even(f, "head_dim", f.count("head_dim"))} | windowed(
                        f, f.count("sliding_window", null=0), kinds)


def llama4(f: Fields) -> Sizes:
    """Llama 4's text part: attention within chunks and, in every fourth layer, everywhere and without positions."""
    heads, count = f.count("num_attention_heads"), layers(f)
    sizes = base(f) | experts(f, "num_local_experts")
    refuse(f, "output_router_logits", "the logits of every router are then handed out")
    turned = no_rope(f, count)
    attention = f.kinds("layer_types", count, CHUNKS) or tuple("chunked" if turn else "full" for turn in turned)
    step = f.count("interleave_moe_layer_step", least=0)
    listed = f.value("moe_layers")
    sparse = set(range(step - 1, count, step) if step else ()) if listed is None else set(listed)
    kinds = tuple(f"{kind}{'' if turn else ', unturned'}{'' if i in sparse else ', dense'}"
                  for i, (kind, turn) in enumerate(zip(attention, turned, strict=True)))
    for field, switch in (("use_qk_norm", "qk_norm"), ("attn_temperature_tuning", "tuned_scores")):
        if f.flag(field):
            sizes["switches"] |= {switch}
    if f.flag("attention_bias"):
        sizes["switches"] |= {"attention_bias", "output_bias"}
    return sizes | {"heads": heads, "kv_heads": kv_heads(f, heads), "layer_kinds": kinds,
                    "head_size": even(f, "head_dim", f.count("head_dim")),
                    "feed_forward": f.count("intermediate_size_mlp"),
                    "expert_feed_forward": f.count("intermediate_size"),
                    "window": f.count("attention_chunk_size")}


def no_rope(f: Fields, count: int) -> tuple[bool, ...]:
    """Which layers turn queries and keys: all but every fourth, unless the file lists them."""
    listed = f.value("no_rope_layers")
    if not listed:
        every = f.count("no_rope_layer_interval")
        return tuple(bool((i + 1) % every) for i in range(count))
    if not isinstance(listed, list) or len(listed) != count:
        raise f.wrong("no_rope_layers", f"give a list of {count:,} numbers, 1 where positions are turned")
    return tuple(bool(word) for word in listed)


def glm_moe_dsa(f: Fields) -> Sizes:
    """GLM-5: DeepSeek-V3 with an indexer that chooses tokens, in every layer or in some."""
    if f.value("q_lora_rank") is None:
        raise f.wrong("q_lora_rank", "its queries always come from a latent")
    sizes = latent(f, "correction_bias", "masked", "interleaved_rope")
    if f.flag("norm_topk_prob"):
        sizes["switches"] |= {"norm_topk"}
    size = f.count("index_head_dim")
    if size <= sizes["sizes"]["dr"]:
        raise Impossible(f"{f.file}: {f.said('index_head_dim')} must be more than {f.said('qk_rope_head_dim')}")
    indexers = {"ai": f.count("index_n_heads"), "di": size, "Ti": f.count("index_topk")}
    count = layers(f)
    dense = min(f.count("first_k_dense_replace", least=0), count)
    kinds = f.kinds("mlp_layer_types", count, {"dense": "dense", "sparse": "moe"}) or (
        ("dense",) * dense + ("moe",) * (count - dense))
    own = f.kinds("indexer_types", count, {"full": "", "shared": ", shared"}) or indexer_pattern(f, count)
    if own[0]:
        raise Impossible(f"{f.file}: the first layer has no indexer, and no layer before it to share one with")
    prediction_layers(f)
    return sizes | {"sizes": sizes["sizes"] | indexers,
                    "layer_kinds": tuple(a + b for a, b in zip(kinds, own, strict=True))}


def indexer_pattern(f: Fields, count: int) -> tuple[str, ...]:
    """Which layers share the choice of the one before, as GlmMoeDsaConfig.__post_init__ finds it."""
    pattern = f.value("index_topk_pattern")
    if pattern is not None:
        words = {"F": "", "S": ", shared", "full": "", "shared": ", shared"}
        if not isinstance(pattern, (str, list)) or len(pattern) != count or not all(
                isinstance(word, str) and word in words for word in pattern):
            raise f.wrong("index_topk_pattern", f"give F or S for each of {count:,} layers")
        return tuple(words[word] for word in pattern)
    every = max(f.count("index_topk_freq", least=0, null=1), 1)
    first = f.count("index_skip_topk_offset", least=0, null=2)
    return tuple(", shared" if max(i - first + 1, 0) % every else "" for i in range(count))


def kimi_k2(config: Mapping[str, Any], file: str) -> dict[str, Any]:
    """Kimi-K2's files name DeepSeek-V3's class and fields under a model_type of their own."""
    return {**config, "model_type": "deepseek_v3"}
