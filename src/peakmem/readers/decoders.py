"""Decoders with rotary positions and a gated feed-forward: config.json fields -> keyword arguments of `Model`."""

from __future__ import annotations

from peakmem.readers.fields import Fields
from peakmem.readers.shared import (
    KINDS,
    Sizes,
    even,
    experts,
    head_size,
    kv_heads,
    layers,
    rope_switches,
    rotary_part,
    windowed,
)

MOST_HEADS = 1024
"""Most heads where each has modules of its own, which are interpreted one by one."""


def decoder(f: Fields, *switches: str, act: str = "hidden_act", turned: bool = True) -> Sizes:
    """What all of them have in common; turned: they have rotary positions."""
    heads, size = f.count("num_attention_heads"), head_size(f)
    kinds = rope_switches(f) if turned else frozenset()
    return {
        "layers": f.count("num_hidden_layers"), "hidden": f.count("hidden_size"), "heads": heads,
        "kv_heads": kv_heads(f, heads), "head_size": even(f, "the head size", size) if turned else size,
        "feed_forward": f.count("intermediate_size"), "vocabulary": f.count("vocab_size"),
        "tied": f.flag("tie_word_embeddings"), "activation": f.activation(act),
        "attention_dropout": f.fraction("attention_dropout"), "switches": frozenset(switches) | kinds,
    }


def biased(f: Fields, sizes: Sizes) -> Sizes:
    """attention_bias: on q, k, v and on the output projection."""
    if f.flag("attention_bias"):
        sizes["switches"] |= {"attention_bias", "output_bias"}
    return sizes


def llama(f: Fields) -> Sizes:
    """Llama 1, 2, 3 and what borrows their class."""
    sizes = biased(f, decoder(f))
    if f.flag("mlp_bias"):
        sizes["switches"] |= {"mlp_bias"}
    return sizes


def granite(f: Fields) -> Sizes:
    """Granite: multipliers on embeddings, layers, scores and logits, whatever their values."""
    for name in ("embedding_multiplier", "residual_multiplier", "attention_multiplier", "logits_scaling"):
        f.value(name)
    sizes = llama(f)
    sizes["switches"] |= {"scaled_logits"}
    return sizes


def mistral(f: Fields) -> Sizes:
    """Mistral: one window for all layers, or null."""
    return decoder(f) | {"window": f.count("sliding_window", null=0)}


def qwen2(f: Fields) -> Sizes:
    """Qwen2: biases on q, k, v."""
    return decoder(f, "attention_bias") | qwen_windows(f)


def qwen3(f: Fields) -> Sizes:
    """Qwen3: norms on q and k."""
    return biased(f, decoder(f, "qk_norm")) | qwen_windows(f)


def qwen_windows(f: Fields) -> Sizes:
    """Full layers first, sliding ones from `max_window_layers` on; the window counts only when it is switched on."""
    window = f.count("sliding_window", null=0) if f.flag("use_sliding_window") else 0
    count, first = f.count("num_hidden_layers"), f.count("max_window_layers", least=0)
    listed = f.kinds("layer_types", count, KINDS)
    if listed is not None:
        return windowed(f, window, listed)
    if not window or first >= count:
        return {}
    if not first:
        return {"window": window}
    return windowed(f, window, ("full",) * first + ("sliding",) * (layers(f) - first))


def phi3(f: Fields) -> Sizes:
    """Phi-3: q, k, v in one matrix, gate and up in one matrix."""
    sizes = decoder(f)
    rotated = rotary_part(f, sizes["head_size"], "partial_rotary_factor", 1.0)
    return sizes | {"window": f.count("sliding_window", null=0), "rotary_size": rotated,
                    "hidden_dropout": f.fraction("resid_pdrop")}


def olmo2(f: Fields) -> Sizes:
    """OLMo-2: norms after the blocks; those of q and k span all heads."""
    return biased(f, decoder(f, "norms_after"))


def stablelm(f: Fields) -> Sizes:
    """StableLM: a quarter of each head rotated unless the file says otherwise."""
    sizes = decoder(f)
    for field, switch in (("use_qkv_bias", "attention_bias"), ("qk_layernorm", "norm_per_head"),
                          ("use_parallel_residual", "parallel_residual")):
        if f.flag(field):
            sizes["switches"] |= {switch}
    if "norm_per_head" in sizes["switches"] and sizes["heads"] > MOST_HEADS:
        raise f.wrong("num_attention_heads", f"with qk_layernorm, a norm for each head, at most {MOST_HEADS:,}")
    sizes["head_size"] = head_size(f, own=False)
    rotated = rotary_part(f, sizes["head_size"], "partial_rotary_factor", 0.25, exact=True)
    return sizes | {"rotary_size": rotated, "hidden_dropout": f.fraction("hidden_dropout")}


def gemma(f: Fields) -> Sizes:
    """Gemma 1. Its files say gelu and mean the tanh form."""
    sizes = biased(f, decoder(f, "scaled_embedding"))
    bidirectional(f)
    if sizes["activation"] == "gelu":
        sizes["activation"] = "gelu_pytorch_tanh"
    return sizes


def gemma2(f: Fields) -> Sizes:
    """Gemma 2: four norms a layer, sliding and full layers in turn; its attention is eager."""
    sizes = gemma_later(f, 2, "eager_only")
    if f.value("attn_logit_softcapping") is not None:
        sizes["switches"] |= {"attention_softcap"}
    return sizes


def gemma3(f: Fields) -> Sizes:
    """Gemma 3, its text part: norms on q and k; one full layer after `sliding_window_pattern - 1` sliding ones.

    Its attention does not read attn_logit_softcapping (transformers 5.24, Gemma3Attention.forward).
    """
    pattern = f.count("sliding_window_pattern") if "sliding_window_pattern" in f.given else 6
    return gemma_later(f, pattern, "qk_norm")


def gemma_later(f: Fields, pattern: int, *switches: str) -> Sizes:
    """What Gemma 2 and 3 share."""
    sizes = biased(f, decoder(f, "scaled_embedding", "sandwich_norms", *switches, act="hidden_activation"))
    window, count = f.count("sliding_window", null=0), layers(f)
    if bidirectional(f) and "qk_norm" in switches:
        window = window // 2 + 1  # transformers: configuration_gemma3.py, the window then reaches both ways
    kinds = f.kinds("layer_types", count, KINDS) or tuple(
        "sliding" if i % pattern else "full" for i in range(1, count + 1))
    if f.value("final_logit_softcapping") is not None:
        sizes["switches"] |= {"logit_softcap"}
    if "sliding" not in kinds:
        return sizes | {"window": window, "layer_kinds": kinds}  # the mask of the window is made all the same
    return sizes | windowed(f, window, kinds)


def bidirectional(f: Fields) -> bool:
    """Attention to tokens on both sides, which is only noted."""
    found = f.flag("use_bidirectional_attention", null=False)
    if found:
        f.notes.append("use_bidirectional_attention is taken as causal attention")
    return found


def mixtral(f: Fields) -> Sizes:
    """Mixtral: every feed-forward is experts; `intermediate_size` is that of one expert."""
    sizes = decoder(f, "norm_topk", *router(f))
    return sizes | experts(f, "num_local_experts") | {
        "expert_feed_forward": sizes["feed_forward"], "window": f.count("sliding_window", null=0)}


def qwen3_moe(f: Fields) -> Sizes:
    """Qwen3-MoE: experts in every `decoder_sparse_step`th layer that is not in `mlp_only_layers`."""
    window = f.count("sliding_window", null=0) if f.flag("use_sliding_window") else 0
    return sparse_layers(f, biased(f, decoder(f, "qk_norm", *router(f)))) | {"window": window}


def sparse_layers(f: Fields, sizes: Sizes) -> Sizes:
    """The same decoder with experts in some layers, or in all."""
    sizes |= experts(f, "num_experts", least=0)
    if f.flag("norm_topk_prob"):
        sizes["switches"] |= {"norm_topk"}
    expert_size, step = f.count("moe_intermediate_size"), f.count("decoder_sparse_step")
    dense = f.value("mlp_only_layers") or []
    if not isinstance(dense, list) or not all(type(i) is int for i in dense):
        raise f.wrong("mlp_only_layers", "give a list of layer numbers")
    if not sizes["experts"] or step > sizes["layers"]:
        return sizes | {"experts": 0, "experts_per_token": 0}
    kinds: tuple[str, ...] = ()
    if step > 1 or dense:
        skipped = frozenset(dense)
        kinds = tuple("dense" if i in skipped or (i + 1) % step else "moe" for i in range(layers(f)))
    if kinds and "moe" not in kinds:
        return sizes | {"experts": 0, "experts_per_token": 0}
    if "dense" not in kinds:
        if "intermediate_size" in f.given:
            f.notes.append("intermediate_size is not used: no layer is dense")
        return sizes | {"feed_forward": expert_size, "expert_feed_forward": expert_size}
    return sizes | {"expert_feed_forward": expert_size, "layer_kinds": kinds}


def router(f: Fields) -> tuple[str, ...]:
    """The auxiliary loss keeps the router's logits of every layer."""
    return ("router_logits",) if f.flag("output_router_logits") else ()
