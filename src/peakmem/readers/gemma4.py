"""Gemma 4: config.json fields -> keyword arguments of `Model`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peakmem.errors import Impossible
from peakmem.model import Model
from peakmem.readers.decoders import biased, decoder
from peakmem.readers.fields import Fields
from peakmem.readers.shared import KINDS, Sizes, even, experts, kv_heads, layers
from peakmem.readers.towers import part
from peakmem.readers.vision_language import together


def gemma4_text(f: Fields) -> Sizes:
    """Gemma 4's text part: five sliding layers and a full one in turn, whose heads are larger and fewer."""
    count = layers(f)
    sizes = biased(f, decoder(f, "scaled_embedding", "sandwich_norms", "qk_norm", act="hidden_activation"))
    for field, why in (("hidden_size_per_layer_input", "embeddings of each layer's own"),
                       ("num_kv_shared_layers", "layers that take keys and values from others")):
        if f.count(field, least=0, null=0):
            raise Impossible(f"{f.file}: {f.said(field)}: {why}, which peakmem does not know; 0 is known")
    f.used |= {"vocab_size_per_layer_input", "use_double_wide_mlp"}
    kinds = f.kinds("layer_types", count, KINDS) or tuple("full" if not i % 6 else "sliding"
                                                          for i in range(1, count + 1))
    if kinds[-1] != "full":
        f.notes.append("the last layer is taken as full_attention, as transformers forces it to be")
        kinds = (*kinds[:-1], "full")
    window = f.count("sliding_window")
    if f.value("use_bidirectional_attention") == "all":
        window = window // 2 + 1
    if f.value("use_bidirectional_attention"):
        f.notes.append("use_bidirectional_attention is taken as causal attention")
    wide = even(f, "global_head_dim", f.count("global_head_dim", null=512))
    fewer = sizes["kv_heads"]
    if f.flag("attention_k_eq_v"):
        sizes["switches"] |= {"keys_as_values"}
        fewer = f.count("num_global_key_value_heads", null=fewer)
        if sizes["heads"] % fewer:
            raise Impossible(f"{f.file}: {f.said('num_global_key_value_heads')} must divide "
                             f"{f.said('num_attention_heads')}")
    f.used.add("num_global_key_value_heads")
    if f.value("final_logit_softcapping") is not None:
        sizes["switches"] |= {"logit_softcap"}
    last = {kind: i for i, kind in enumerate(kinds)}
    sizes |= {"layer_kinds": tuple(f"{kind}, left" if last[kind] == i else kind for i, kind in enumerate(kinds)),
              "window": window if "sliding" in kinds else 0, "sizes": {"dg": wide, "kg": fewer}}
    if f.flag("enable_moe_block"):
        sizes |= experts(f, "num_experts", chosen="top_k_experts")
        sizes |= {"expert_feed_forward": f.count("moe_intermediate_size")}
    return sizes


VISION: Mapping[str, Any] = {
    "hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 16, "num_attention_heads": 12,
    "num_key_value_heads": 12, "head_dim": 64, "hidden_activation": "gelu_pytorch_tanh", "attention_dropout": 0.0,
    "patch_size": 16, "position_embedding_size": 10240, "use_clipped_linears": False, "standardize": False}


def gemma4(f: Fields) -> Sizes:
    """Gemma 4 with its tower for pictures; that for sounds is not known."""
    from peakmem.readers.defaults import DEFAULTS

    if f.value("audio_config") is not None:
        raise Impossible(f"{f.file}: audio_config: a tower for sounds, which peakmem does not know; null is known")
    inner = part(f, "text_config", DEFAULTS["gemma4_text"])
    inner.notes, inner.assumed = f.notes, f.assumed
    text = gemma4_text(inner)
    pictures = part(f, "vision_config", VISION)
    switches = text["switches"] | {switch for field, switch in (("standardize", "standardized"),
                                                                ("use_clipped_linears", "clipped"))
                                   if pictures.flag(field)}
    heads = pictures.count("num_attention_heads")
    tower = Model(
        name="image", architecture="gemma4", layers=layers(pictures), hidden=pictures.count("hidden_size"),
        heads=heads, kv_heads=kv_heads(pictures, heads),
        head_size=even(pictures, "head_dim", pictures.count("head_dim")),
        feed_forward=pictures.count("intermediate_size"), activation=pictures.activation("hidden_activation"),
        patch=pictures.count("patch_size", most=10**4), channels=3,
        sizes={"pp": pictures.count("position_embedding_size")})
    return together(f, text | {"tied": f.flag("tie_word_embeddings"), "switches": switches}, tower)
