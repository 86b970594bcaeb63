"""DeepSeek-V4: config.json fields -> keyword arguments of `Model`."""

from __future__ import annotations

from collections.abc import Mapping

from peakmem.errors import Impossible, printable
from peakmem.readers.fields import Fields
from peakmem.readers.mixtures import prediction_layers
from peakmem.readers.shared import Sizes, even, experts, layers, refuse

WORDS: Mapping[str, str] = {"sliding_attention": "sliding", "compressed_sparse_attention": "csa",
                            "heavily_compressed_attention": "hca"}
RATIOS: Mapping[int, str] = {0: "sliding", 4: "csa", 128: "hca"}
RATES: Mapping[str, tuple[str, int]] = {"compressed_sparse_attention": ("compress_rate_csa", 4),
                                        "heavily_compressed_attention": ("compress_rate_hca", 128)}


def deepseek_v4(f: Fields) -> Sizes:
    """DeepSeek-V4: one key for all heads, compressed in most layers; experts everywhere, the first chosen by hash."""
    count, heads, size = layers(f), f.count("num_attention_heads"), f.count("head_dim")
    groups = f.count("o_groups")
    if heads * size % groups:
        raise Impossible(f"{f.file}: {f.said('o_groups')} must divide the {heads} heads of {size}")
    if f.flag("attention_bias"):
        f.notes.append("attention_bias is not used: transformers' class has no biases in attention")
    refuse(f, "output_router_logits", "the logits of every router are then handed out")
    if f.count("n_shared_experts", least=0, null=0) != 1 or f.count("num_key_value_heads") != 1:
        raise Impossible(f"{f.file}: transformers' class has one shared expert and one key/value head; give "
                         "n_shared_experts 1 and num_key_value_heads 1")
    kinds = kinds_of(f, count)
    expert = f.count("moe_intermediate_size")
    f.notes.append("keys and values are one tensor in compressed layers and are counted once; the shapes of "
                   "transformers' caches list it twice")
    if f.value("expert_dtype") is not None:
        f.notes.append(f"expert_dtype is {printable(f.value('expert_dtype'), 20)}: the file's experts have fewer bits "
                       "than quantization_config says, which is not counted")
    prediction_layers(f)
    return experts(f, "n_routed_experts") | {
        "layers": count, "layer_kinds": kinds, "hidden": f.count("hidden_size"), "heads": heads, "kv_heads": 1,
        "head_size": size, "feed_forward": expert, "expert_feed_forward": expert, "vocabulary": f.count("vocab_size"),
        "tied": f.flag("tie_word_embeddings"), "activation": f.activation("hidden_act"),
        "window": f.count("sliding_window"), "attention_dropout": f.fraction("attention_dropout"),
        "switches": frozenset({"mlp_bias"} if f.flag("mlp_bias") else ()),
        "sizes": {"lq": f.count("q_lora_rank"), "og": groups, "ol": f.count("o_lora_rank"), "hm": f.count("hc_mult"),
                  "ai": f.count("index_n_heads"), "di": f.count("index_head_dim"), "dr": turned(f, size), **rates(f)}}


def turned(f: Fields, size: int) -> int:
    """The turned part of a head."""
    if f.given.get("partial_rotary_factor") is not None:
        return even(f, "the turned part of a head", int(size * f.fraction("partial_rotary_factor")))
    if f.given.get("qk_rope_head_dim") is not None:
        return even(f, "qk_rope_head_dim", f.count("qk_rope_head_dim", most=size))
    return even(f, "the turned part of a head", size // 8)


def rates(f: Fields) -> dict[str, int]:
    """How many tokens become one entry, in both kinds of layers."""
    given = f.value("compress_rates") or {}
    if not isinstance(given, dict):
        raise f.wrong("compress_rates", "give an object with a number for each kind of layer")
    found = []
    for word, (old, usual) in RATES.items():
        value = f.value(old) if old in f.given else given.get(word, usual)
        found.append(Fields(f.file, {word: value}, {}).count(word, most=10**6))
    return {"zc": found[0], "zh": found[1]}


def kinds_of(f: Fields, count: int) -> tuple[str, ...]:
    """Attention of each layer, and whether a hash of the token chooses its experts (DeepseekV4Config.__post_init__)."""
    kinds = f.kinds("layer_types", count, WORDS)
    ratios = f.value("compress_ratios")
    if kinds is None and ratios is not None:
        if not isinstance(ratios, list) or len(ratios) < count or any(
                type(r) is not int or r not in RATIOS for r in ratios):
            raise f.wrong("compress_ratios", f"give 0, 4 or 128 for each of {count:,} layers")
        kinds = tuple(RATIOS[r] for r in ratios[:count])
    if kinds is None:
        kinds = (("hca", "hca") + tuple("csa" if i % 2 else "hca" for i in range(count)))[:count]
    hashed = f.count("num_hash_layers", least=0) if f.given.get("num_hash_layers") is not None else 3
    chosen = f.kinds("mlp_layer_types", count, {"hash_moe": ", hash", "moe": ""}) or tuple(
        ", hash" if i < hashed else "" for i in range(count))
    return tuple(a + b for a, b in zip(kinds, chosen, strict=True))
