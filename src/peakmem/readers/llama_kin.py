"""More decoders that are Llama's kin: config.json fields -> keyword arguments of `Model`."""

from __future__ import annotations

from peakmem.errors import Impossible
from peakmem.readers.decoders import biased, decoder, llama, router
from peakmem.readers.fields import Fields
from peakmem.readers.mixtures import first_dense, grouped_experts
from peakmem.readers.shared import KINDS, Sizes, experts, head_size, layers, refuse, rotary_part, windowed


def arcee(f: Fields) -> Sizes:
    """Arcee's AFM: a feed-forward without a gate."""
    divisible(f)
    return llama(f)


def divisible(f: Fields) -> None:
    """Classes that refuse hidden sizes that heads do not divide, whatever head_dim says. Errors: Impossible."""
    head_size(f, own=False)


def cohere2(f: Fields) -> Sizes:
    """Command-R7B and Command-A: three sliding layers, then a full one, unless the file lists them."""
    sizes = biased(f, decoder(f, "scaled_logits"))
    return sizes | repeated_windows(f, f.count("sliding_window_pattern") if "sliding_window_pattern" in f.given else 4)


def repeated_windows(f: Fields, pattern: int) -> Sizes:
    """Layers as the file lists them, or every `pattern`th full and the others sliding."""
    count = layers(f)
    kinds = f.kinds("layer_types", count, KINDS) or tuple(
        "sliding" if i % pattern else "full" for i in range(1, count + 1))
    return windowed(f, f.count("sliding_window", null=0), kinds)


def cwm(f: Fields) -> Sizes:
    """Code World Model: Llama, a full layer and then three that slide."""
    divisible(f)
    sizes, count = decoder(f), layers(f)
    if f.flag("mlp_bias"):
        sizes["switches"] |= {"mlp_bias"}
    kinds = f.kinds("layer_types", count, KINDS) or tuple("sliding" if i % 4 else "full" for i in range(count))
    return sizes | windowed(f, f.count("sliding_window", least=0, null=0), kinds)


def exaone4(f: Fields) -> Sizes:
    """EXAONE 4: every fourth layer full and the others sliding, or all full where there is no window."""
    sizes, window = decoder(f, "swapped_qk_norm", "norms_after"), f.count("sliding_window", null=0)
    if window:
        sizes["switches"] |= {"unturned_full"}
        pattern = f.value("sliding_window_pattern")
        if f.value("layer_types") is None and not (type(pattern) is int and pattern > 0):
            raise f.wrong("sliding_window_pattern", "give a whole number of at least 1, or layer_types")
        return sizes | repeated_windows(f, pattern if type(pattern) is int else 1)
    f.used.add("sliding_window_pattern")
    if f.value("layer_types") is None:
        raise Impossible(f"{f.file}: sliding_window is null and layer_types is missing: transformers' class then "
                         "divides by a pattern of 0; give layer_types")
    return sizes | repeated_windows(f, 1)


def granitemoe(f: Fields) -> Sizes:
    """Granite's mixtures: every feed-forward is experts; `intermediate_size` is that of one."""
    for name in ("embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"):
        f.value(name)
    sizes = biased(f, decoder(f, "scaled_logits")) | experts(f, "num_local_experts")
    return sizes | {"expert_feed_forward": sizes["feed_forward"], "switches": sizes["switches"] | set(router(f))}


def helium(f: Fields) -> Sizes:
    """Helium: its output projection is square."""
    sizes = llama(f)
    sizes["switches"] -= {"output_bias"}
    if sizes["heads"] * sizes["head_size"] != sizes["hidden"]:
        raise Impossible(f"{f.file}: head_dim {sizes['head_size']} × {f.said('num_attention_heads')} must be "
                         f"{f.said('hidden_size')}: the output projection is as wide")
    return sizes


def ernie4_5(f: Fields) -> Sizes:
    """ERNIE 4.5: one switch for all biases, no dropout."""
    biases = ("attention_bias", "output_bias", "mlp_bias") if f.flag("use_bias", null=False) else ()
    return decoder(f, "undropped", *biases)


def hunyuan_v1_dense(f: Fields) -> Sizes:
    """Hunyuan's dense models. Their files say `dynamic` for frequencies that do not change (alpha)."""
    sizes = biased(f, decoder(f, "turned_qk_norm"))
    scaling = f.given.get("rope_scaling") or f.given.get("rope_parameters")
    if isinstance(scaling, dict) and scaling.get("alpha"):
        sizes["switches"] -= {"dynamic_rope"}
    return sizes


def apertus(f: Fields) -> Sizes:
    """Apertus: norms on queries and keys; xIELU, an activation with two trained numbers, which no other class makes."""
    own = f.value("hidden_act") == "xielu"
    if own:
        f.given["hidden_act"] = "silu"
    sizes = biased(f, decoder(f, "swapped_qk_norm"))
    return sizes | {"activation": "xielu"} if own else sizes


def ministral3(f: Fields) -> Sizes:
    """Ministral 3: one window for all layers, or null."""
    return decoder(f) | {"window": f.count("sliding_window", null=0)}


def dots1(f: Fields) -> Sizes:
    """dots.llm1: layers slide from max_window_layers on; DeepSeek-V3's experts behind the first dense layers."""
    sizes = biased(f, decoder(f, "qk_norm", "correction_bias")) | grouped_experts(f)
    if f.flag("norm_topk_prob", null=False):
        sizes["switches"] |= {"norm_topk"}
    count, window = layers(f), f.count("sliding_window", null=0)
    first = f.count("max_window_layers", least=0, null=0)
    kinds = f.kinds("layer_types", count, KINDS) or tuple(
        "sliding" if window and i >= first else "full" for i in range(count))
    dense = first_dense(f, sizes).get("layer_kinds") or ("",) * count
    found = windowed(f, window, kinds)
    if not any(word == "dense" for word in dense):
        return sizes | found
    return sizes | {"window": found["window"], "layer_kinds": tuple(
        f"{kind}, dense" if word == "dense" else kind for kind, word in zip(kinds, dense, strict=True))}


def nemotron(f: Fields) -> Sizes:
    """Nemotron: half of each head turned; null as num_key_value_heads is no number of heads to its class."""
    f.count("num_key_value_heads")
    sizes = llama(f)
    return sizes | {"rotary_size": rotary_part(f, sizes["head_size"], "partial_rotary_factor", 0.5)}


def ernie4_5_moe(f: Fields) -> Sizes:
    """ERNIE 4.5's mixtures: experts from one layer to another, in every nth layer."""
    sizes, count = ernie4_5(f), layers(f)
    sizes["switches"] |= set(router(f))
    first, last = f.count("moe_layer_start_index", least=0), f.value("moe_layer_end_index")
    if type(last) is not int or last < -1:
        raise f.wrong("moe_layer_end_index", "give a layer's number, or -1 for the last")
    last, step = count - 1 if last == -1 else last, f.count("moe_layer_interval")
    kinds = tuple("dense" if (i + 1) % step or not first <= i <= last else "full" for i in range(count))
    if "full" not in kinds:
        raise Impossible(f"{f.file}: no layer has experts; give the model_type ernie4_5")
    expert, shared = f.count("moe_intermediate_size"), f.count("moe_num_shared_experts", least=0)
    if shared:
        sizes["switches"] |= {"shared_experts"}
    return sizes | experts(f, "moe_num_experts", chosen="moe_k") | {
        "expert_feed_forward": expert, "layer_kinds": kinds if "dense" in kinds else (),
        "sizes": {"y": expert * shared} if shared else {}}


def hunyuan_v1_moe(f: Fields) -> Sizes:
    """Hunyuan's mixtures: numbers for each layer, which their files list, are the same in all that are known."""
    for name in ("num_experts", "moe_topk"):
        listed = f.value(name)
        if isinstance(listed, list) and listed and all(number == listed[0] for number in listed):
            f.given[name] = listed[0]
    refuse(f, "output_router_logits", "the logits of every router are then handed out")
    sizes = hunyuan_v1_dense(f) | experts(f, "num_experts", chosen="moe_topk")
    return sizes | {"expert_feed_forward": sizes["feed_forward"]}
