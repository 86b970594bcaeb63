"""Decoders that mix Mamba 2 or short convolutions with attention: Granite 4, Bamba, Falcon-H1, LFM2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peakmem.errors import Impossible
from peakmem.readers.decoders import biased, decoder, router
from peakmem.readers.fields import Fields
from peakmem.readers.recurrent import SCAN
from peakmem.readers.shared import Sizes, even, experts, head_size, kv_heads, layers, refuse, rope_switches, rotary_part

MIXERS: Mapping[str, str] = {"linear_attention": "mamba", "mamba": "mamba", "full_attention": "full",
                             "attention": "full"}


def granitemoehybrid(f: Fields) -> Sizes:
    """Granite 4: Mamba 2 or attention, experts or none, and a feed-forward that every token meets."""
    for name in ("embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"):
        f.value(name)
    turned = f.value("position_embedding_type") == "rope"
    sizes = biased(f, decoder(f, "scaled_logits", turned=turned)) | experts(f, "num_local_experts", least=0)
    shared = f.count("shared_intermediate_size")
    mamba, switches = mamba2_part(f)
    if not turned:
        switches |= {"unturned"}
        f.notes.append("position_embedding_type is not rope: attention knows no positions")
    renamed(f, "layers_block_type", "layer_types")
    routed = router(f)
    count = layers(f)
    kinds = f.kinds("layer_types", count, MIXERS) or ("mamba",) * count
    if sizes["experts"]:
        mamba["y"] = shared
        sizes["expert_feed_forward"] = sizes["feed_forward"]
    elif routed:
        raise Impossible(f"{f.file}: output_router_logits is true and num_local_experts 0: there is no router; set it "
                         "to false")
    else:
        if "intermediate_size" in f.given:
            f.notes.append("intermediate_size is not used: there are no experts")
        f.assumed.pop((f.place, "intermediate_size"), None)
        sizes["feed_forward"] = shared
    return sizes | {"layer_kinds": kinds, "sizes": mamba, "switches": sizes["switches"] | {*switches, *routed}}


def bamba(f: Fields) -> Sizes:
    """Bamba: Mamba 2, and attention in the layers of `attn_layer_indices`; half of each head is turned."""
    if f.given.pop("partial_rotary_factor", 0.5) != 0.5:
        f.notes.append("partial_rotary_factor is not used: the class turns half of each head")
    sizes = with_biases(f, decoder(f))
    if f.value("z_loss_coefficient"):
        raise Impossible(f"{f.file}: {f.said('z_loss_coefficient')} adds a term to the loss that peakmem does not "
                         "know; set it to 0")
    attends = indices(f, "attn_layer_indices")
    mamba, switches = mamba2_part(f)
    kinds = tuple("full" if i in attends else "mamba" for i in range(layers(f)))
    return sizes | {"layer_kinds": kinds, "sizes": mamba, "switches": sizes["switches"] | switches,
                    "rotary_size": rotary_part(f, sizes["head_size"], "partial_rotary_factor", 0.5)}


def falcon_h1(f: Fields) -> Sizes:
    """Falcon-H1: Mamba 2 beside attention in every layer, multiplied at every joint, whatever the factors."""
    for name in ("lm_head_multiplier", "embedding_multiplier", "key_multiplier", "attention_out_multiplier",
                 "attention_in_multiplier", "ssm_in_multiplier", "ssm_out_multiplier", "mlp_multipliers",
                 "ssm_multipliers"):
        f.value(name)
    sizes = with_biases(f, decoder(f, "scaled_logits"))
    mamba, switches = mamba2_part(f, "mamba_d_ssm")
    chosen = {switch for field, switch in (("projectors_bias", "mixer_output_bias"), ("mamba_rms_norm", "mixer_norm"),
                                           ("mamba_norm_before_gate", "norm_before_gate")) if f.flag(field)}
    return sizes | {"layer_kinds": ("full",) * layers(f), "sizes": mamba,
                    "switches": sizes["switches"] | switches | chosen}


def with_biases(f: Fields, sizes: Sizes) -> Sizes:
    """attention_bias, and mlp_bias."""
    if f.flag("mlp_bias"):
        sizes["switches"] |= {"mlp_bias"}
    return biased(f, sizes)


def indices(f: Fields, name: str) -> frozenset[int]:
    """Numbers of layers, or none. Errors: Unreadable."""
    found = f.value(name)
    if found is not None and not (isinstance(found, list) and all(type(i) is int for i in found)):
        raise f.wrong(name, "give a list of layer numbers")
    return frozenset(found or ())


def mamba2_part(f: Fields, own: str = "") -> tuple[dict[str, Any], frozenset[str]]:
    """Letters and switches of a Mamba 2 as wide as `mamba_expand` times the model, or as a field of its own says.

    Errors: Impossible.
    """
    f.notes.append(SCAN.format("in chunks"))
    heads, groups, wide = f.count("mamba_n_heads"), f.count("mamba_n_groups"), f.count(own, null=0) if own else 0
    said = f.said(own) if wide else f"{f.said('mamba_expand')} times {f.said('hidden_size')}"
    inner = wide or f.count("mamba_expand", most=10**3) * f.count("hidden_size")
    size = inner // heads if f.value("mamba_d_head") == "auto" else f.count("mamba_d_head")
    if size * heads != inner:
        raise Impossible(f"{f.file}: {said} must be {f.said('mamba_n_heads')} times {f.said('mamba_d_head')}")
    if heads % groups:
        raise Impossible(f"{f.file}: {f.said('mamba_n_groups')} must divide {f.said('mamba_n_heads')}")
    if "time_step_limit" in f.given and f.value("time_step_limit") is None:
        raise f.wrong("time_step_limit", "give two numbers: the class cuts time steps there")
    f.used |= {"time_step_limit", "mamba_expand", "num_logits_to_keep"}
    return ({"am": heads, "rm": heads // groups, "em": size, "Gm": groups, "o": f.count("mamba_d_state"),
             "q": f.count("mamba_d_conv"), "cm": f.count("mamba_chunk_size")},
            frozenset(switch for field, switch in (("mamba_proj_bias", "mixer_bias"), ("mamba_conv_bias", "conv_bias"))
                      if f.flag(field)))


SHORT: Mapping[str, str] = {"conv": "conv", "full_attention": "full", "attention": "full"}


def lfm2(f: Fields) -> Sizes:
    """LFM2: short convolutions, attention where `layer_types` or `full_attn_idxs` say so."""
    renamed(f, "block_ff_dim", "intermediate_size")
    count = layers(f)
    attends = indices(f, "full_attn_idxs")
    if f.value("full_attn_idxs") is None:
        attends = frozenset(range(count))
    kinds = f.kinds("layer_types", count, SHORT)
    if kinds is None:
        kinds = tuple("full" if i in attends else "conv" for i in range(count))
    return short_convolutions(f) | {"layer_kinds": kinds, "feed_forward": adjusted(f)}


def adjusted(f: Fields) -> int:
    """The width that Lfm2MLP makes of `intermediate_size`: two thirds, times a factor, rounded up."""
    size = f.count("intermediate_size")
    share, step = f.value("block_ffn_dim_multiplier"), f.count("block_multiple_of")
    if not f.flag("block_auto_adjust_ff_dim"):
        return size
    found = int(2 * size / 3)
    if share is not None:
        if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share < 10**3:
            raise f.wrong("block_ffn_dim_multiplier", "give a number above 0, or null")
        found = -(-int(share * found) // step) * step
    f.notes.append(f"feed-forward {found:,}: block_auto_adjust_ff_dim makes it of intermediate_size {size:,}")
    return found


def lfm2_moe(f: Fields) -> Sizes:
    """LFM2's mixtures: the first layers dense, all others with experts."""
    count, dense = layers(f), f.count("num_dense_layers", least=0)
    kinds = f.kinds("layer_types", count, SHORT)
    if kinds is None:
        raise f.wrong("layer_types", "give a list with conv or full_attention for each layer")
    refuse(f, "output_router_logits", "the logits of every router are then handed out")
    sizes = short_convolutions(f)
    for field, switch in (("use_expert_bias", "correction_bias"), ("norm_topk_prob", "norm_topk")):
        if f.flag(field):
            sizes["switches"] |= {switch}
    return sizes | experts(f, "num_experts") | {
        "layer_kinds": tuple(kind if i < dense else f"{kind}, moe" for i, kind in enumerate(kinds)),
        "feed_forward": f.count("intermediate_size"), "expert_feed_forward": f.count("moe_intermediate_size")}


def short_convolutions(f: Fields) -> Sizes:
    """What both have: grouped attention with rotary positions, convolutions as wide as the model."""
    renamed(f, "tie_embedding", "tie_word_embeddings")
    f.notes.append("short convolutions as transformers' own PyTorch code runs them, without the package causal-conv1d")
    heads = f.count("num_attention_heads")
    return {
        "layers": f.count("num_hidden_layers"), "hidden": f.count("hidden_size"), "heads": heads,
        "kv_heads": kv_heads(f, heads), "head_size": even(f, "the head size", head_size(f)),
        "vocabulary": f.count("vocab_size"), "tied": f.flag("tie_word_embeddings"), "activation": "silu",
        "switches": rope_switches(f) | {"undropped"} | ({"conv_bias"} if f.flag("conv_bias") else set()),
        "sizes": {"q": f.count("conv_L_cache")}}


def renamed(f: Fields, old: str, name: str) -> None:
    """An older name that wins over the newer one, as the configuration class has it."""
    if old in f.given:
        f.given[name] = f.given.pop(old)
