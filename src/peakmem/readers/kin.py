"""Families that are others' kin: Ministral, Seed-OSS, GLM, OLMo, SmolLM3, MiniMax-M2, Qwen2-MoE, OLMoE, GLM-4.5."""

from __future__ import annotations

from peakmem.errors import Impossible
from peakmem.readers.decoders import biased, decoder, router, sparse_layers
from peakmem.readers.fields import Fields
from peakmem.readers.mixtures import first_dense, grouped_experts, no_rope, prediction_layers
from peakmem.readers.shared import KINDS, Sizes, experts, head_size, layers, rotary_part, windowed


def ministral(f: Fields) -> Sizes:
    """Ministral: each layer sliding or full; all slide where the file lists none."""
    f.count("head_dim")  # the class cannot be built without it
    window = f.count("sliding_window", null=0)
    kinds = f.kinds("layer_types", f.count("num_hidden_layers"), KINDS)
    return decoder(f) | (windowed(f, window, kinds) if kinds else {"window": window})


def seed_oss(f: Fields) -> Sizes:
    """Seed-OSS: biases on q, k, v; dropout behind each branch; null as head_dim is hidden size over heads."""
    if "head_dim" in f.given and f.given["head_dim"] is None:
        f.given["head_dim"] = head_size(f, own=False)
    sizes = decoder(f)
    for field, switch in (("attention_bias", "attention_bias"), ("attention_out_bias", "output_bias"),
                          ("mlp_bias", "mlp_bias")):
        if f.flag(field):
            sizes["switches"] |= {switch}
    return sizes | {"hidden_dropout": f.fraction("residual_dropout")}


def glm(f: Fields) -> Sizes:
    """GLM: half of each head turned unless the file says otherwise; no bias on the output projection."""
    sizes = decoder(f)
    if f.flag("attention_bias"):
        sizes["switches"] |= {"attention_bias"}
    return sizes | {"rotary_size": rotary_part(f, sizes["head_size"], "partial_rotary_factor", 0.5)}


def glm4(f: Fields) -> Sizes:
    """GLM-4: GLM with norms behind the branches, too."""
    sizes = glm(f)
    return sizes | {"switches": sizes["switches"] | {"sandwich_norms"}}


def clipped(f: Fields) -> None:
    """OLMo's clip_qkv clamps in place, which keeps a copy of each. Errors: Impossible."""
    if f.value("clip_qkv") is not None:
        raise Impossible(f"{f.file}: clip_qkv is {f.value('clip_qkv')}: q, k and v are clamped, which peakmem does not "
                         "know; set it to null")


def olmo(f: Fields) -> Sizes:
    """OLMo: Llama with norms that have no weights."""
    clipped(f)
    return biased(f, decoder(f))


def olmo3(f: Fields) -> Sizes:
    """OLMo-3: OLMo-2 with one full layer after three sliding ones."""
    count = layers(f)
    kinds = f.kinds("layer_types", count, KINDS) or tuple("sliding" if i % 4 else "full" for i in range(1, count + 1))
    return biased(f, decoder(f, "norms_after")) | windowed(f, f.count("sliding_window", null=0), kinds)


def olmoe(f: Fields) -> Sizes:
    """OLMoE: every feed-forward is experts; `intermediate_size` is that of one."""
    clipped(f)
    sizes = biased(f, decoder(f, *router(f))) | experts(f, "num_experts")
    if sizes["heads"] * sizes["head_size"] != sizes["hidden"]:
        raise Impossible(f"{f.file}: head_dim {sizes['head_size']} × {f.said('num_attention_heads')} must be "
                         f"{f.said('hidden_size')}: the norms of q and k are as wide")
    if f.flag("norm_topk_prob"):
        sizes["switches"] |= {"norm_topk"}
    return sizes | {"expert_feed_forward": sizes["feed_forward"]}


def smollm3(f: Fields) -> Sizes:
    """SmolLM3: layers that turn nothing, every fourth unless the file lists them; those slide where windows are on."""
    sizes, count = biased(f, decoder(f)), layers(f)
    if f.flag("mlp_bias"):
        sizes["switches"] |= {"mlp_bias"}
    turned = no_rope(f, count)
    window = f.count("sliding_window", null=0) if f.flag("use_sliding_window") else 0
    kinds = f.kinds("layer_types", count, KINDS) or tuple("full" if turns or not window else "sliding"
                                                          for turns in turned)
    return sizes | {"window": windowed(f, window, kinds)["window"], "layer_kinds": tuple(
        kind if turns else f"{kind}, unturned" for kind, turns in zip(kinds, turned, strict=True))}


def minimax_m2(f: Fields) -> Sizes:
    """MiniMax-M2: every feed-forward is experts; rotary_dim elements of a head are turned, in its released files."""
    sizes = decoder(f, "norm_topk", *router(f)) | experts(f, "num_local_experts")
    if f.value("router_jitter_noise"):
        f.notes.append("router_jitter_noise is taken as 0")
    if f.given.get("rotary_dim") is not None:
        turned = f.count("rotary_dim", most=sizes["head_size"])
        share: float = turned / sizes["head_size"]
    else:
        share = 1.0
    if "num_mtp_modules" in f.given and f.count("num_mtp_modules", least=0, null=0):
        f.notes.append("modules for multi-token prediction in the file's weights: transformers' class does not have "
                       "them, and they are not counted")
    f.used |= {"mtp_transformer_layers", "use_mtp", "use_qk_norm", "qk_norm_type", "use_routing_bias", "scoring_func"}
    return sizes | {"expert_feed_forward": sizes["feed_forward"],
                    "rotary_size": rotary_part(f, sizes["head_size"], "partial_rotary_factor", share)}


def qwen2_moe(f: Fields) -> Sizes:
    """Qwen2-MoE: experts as in Qwen3-MoE, and one that every token meets."""
    sizes = sparse_layers(f, decoder(f, *router(f), *(("attention_bias",) if f.flag("qkv_bias") else ())))
    sizes["sizes"] = {"y": f.count("shared_expert_intermediate_size")}
    window = f.count("sliding_window", null=0) if f.flag("use_sliding_window") else 0
    count, first = sizes["layers"], f.count("max_window_layers", least=0)
    kinds = f.kinds("layer_types", count, KINDS)
    if not window:
        sizes["switches"] |= {"empty_window"}
    if not window and (kinds is None or "sliding" not in kinds):
        return sizes
    kinds = kinds or tuple("full" if i % 2 or i >= first else "sliding" for i in range(layers(f)))
    dense = sizes.get("layer_kinds") or ("",) * count
    return sizes | {"window": windowed(f, window, kinds)["window"], "layer_kinds": tuple(
        f"{kind}, dense" if word == "dense" else kind for kind, word in zip(kinds, dense, strict=True))}


def glm4_moe(f: Fields) -> Sizes:
    """GLM-4.5: grouped attention, half of each head turned; DeepSeek-V3's experts."""
    sizes = glm(f) | grouped_experts(f)
    sizes["switches"] |= {"correction_bias"}
    for field, switch in (("use_qk_norm", "qk_norm"), ("norm_topk_prob", "norm_topk")):
        if f.flag(field):
            sizes["switches"] |= {switch}
    prediction_layers(f)
    return sizes | first_dense(f, sizes)


def mimo_v2_flash(f: Fields) -> Sizes:
    """MiMo-V2-Flash: sliding layers have twice the key/value heads; a full layer first, and then every sixth.

    Its released files say the same in words that the class does not read: a hybrid_layer_pattern that is another, or
    other heads, would be another network. Errors: Impossible.
    """
    sizes, count = decoder(f, "eager_only", *router(f)) | grouped_experts(f, always=False), layers(f)
    kinds = f.kinds("layer_types", count, KINDS) or tuple(
        "full" if not i or not (i + 1) % 6 else "sliding" for i in range(count))
    dense = f.kinds("mlp_layer_types", count, {"dense": "dense", "sparse": "moe"}) or ("dense", *("moe",) * (count - 1))
    heads, wide = sizes["heads"], 2 * sizes["kv_heads"]
    if heads % wide:
        raise Impossible(f"{f.file}: sliding layers have {wide} key/value heads, which must divide "
                         f"{f.said('num_attention_heads')}")
    pattern = f.given.get("hybrid_layer_pattern")
    if pattern is not None and pattern != [int(kind == "sliding") for kind in kinds]:
        raise Impossible(f"{f.file}: hybrid_layer_pattern is not the class's: a full layer first and then every sixth")
    for name, value in (("swa_num_key_value_heads", wide), ("swa_num_attention_heads", heads),
                        ("swa_head_dim", sizes["head_size"]), ("swa_v_head_dim", f.count("v_head_dim"))):
        if f.given.get(name) not in (None, value):
            raise Impossible(f"{f.file}: {name} is {f.given[name]}, and the class has {value}")
    f.used |= {"hybrid_layer_pattern", "moe_layer_freq", "n_shared_experts", "first_k_dense_replace", "scoring_func",
               "swa_num_key_value_heads", "swa_num_attention_heads", "swa_head_dim", "swa_v_head_dim"}
    before = f.count("sliding_window_size") + 1 if f.given.get("sliding_window_size") is not None else 0
    sizes["switches"] |= {"correction_bias", *(("norm_topk",) if f.flag("norm_topk_prob") else ()),
                          *(("whole_kw",) if wide == heads else ()),
                          *(("attention_bias",) if f.flag("attention_bias") else ())}
    return sizes | {
        "window": windowed(f, before or f.count("sliding_window"), kinds)["window"],
        "rotary_size": rotary_part(f, sizes["head_size"], "partial_rotary_factor", 0.334),
        "sizes": {**sizes["sizes"], "kw": wide, "dv": f.count("v_head_dim")},
        "layer_kinds": tuple(f"{kind}, dense" if word == "dense" else kind
                             for kind, word in zip(kinds, dense, strict=True)),
    }
