"""Zamba2: Mamba 2, and a few blocks of attention that several layers share."""

from __future__ import annotations

from peakmem.errors import Impossible
from peakmem.readers.fields import Fields
from peakmem.readers.hybrids import renamed
from peakmem.readers.recurrent import SCAN
from peakmem.readers.shared import Sizes, even, kv_heads, layers, rope_switches

KINDS = {"linear_attention": "mamba", "mamba": "mamba", "hybrid": "hybrid"}
USUAL = ("mamba",) + (("mamba",) * 5 + ("hybrid",)) * 7 + ("mamba",) * 4 + ("hybrid",) + ("mamba",) * 3 + (
    "hybrid",) + ("mamba",) * 2
"""Zamba2Config.__post_init__, where a file lists no layers."""


def zamba2(f: Fields) -> Sizes:
    """Zamba2. Attention reads the layer's input beside the embeddings, so it is twice as wide as the model."""
    f.notes.append(SCAN.format("in chunks"))
    renamed(f, "layer_types", "layers_block_type")
    count, hidden, heads = layers(f), f.count("hidden_size"), f.count("num_attention_heads")
    wide = f.count("attention_hidden_size", null=2 * hidden)
    size = f.count("attention_head_dim", null=2 * hidden // heads)
    if wide != 2 * hidden or size * heads != wide:
        raise Impossible(f"{f.file}: attention_hidden_size {wide} must be twice {f.said('hidden_size')}, and "
                         f"{f.said('num_attention_heads')} times attention_head_dim {size}")
    turned, keys = f.flag("use_mem_rope"), kv_heads(f, heads)
    switches = {"conv_bias", *(rope_switches(f) if turned else ("unturned",))}
    if f.flag("add_bias_linear"):
        switches |= {"mixer_bias"}
    if f.flag("use_shared_attention_adapter"):
        switches |= {"attention_adapters"}
        if keys != heads:
            raise Impossible(f"{f.file}: use_shared_attention_adapter adds to keys that are as wide as queries, but "
                             f"{f.said('num_key_value_heads')} is not {f.said('num_attention_heads')}")
    kinds = f.kinds("layers_block_type", count, KINDS) or USUAL
    if len(kinds) != count:
        raise Impossible(f"{f.file}: {f.said('num_hidden_layers')}, but where layers_block_type is missing there are "
                         f"{len(kinds)} layers; give layers_block_type")
    feed_forward = f.count("intermediate_size", least=0, null=0) or 4 * hidden
    f.used |= {"mamba_headdim", "hybrid_layer_ids", "kv_channels", "num_query_groups", "use_conv_bias",
               "num_logits_to_keep", "time_step_min", "time_step_max", "time_step_floor", "use_long_context",
               "use_mamba_kernels", "use_mem_eff_path", "mamba_expand"}
    return {
        "layers": count, "layer_kinds": shared(kinds, f.count("num_mem_blocks")), "hidden": hidden, "heads": heads,
        "kv_heads": keys, "head_size": even(f, "the head size", size) if turned else size,
        "feed_forward": feed_forward, "vocabulary": f.count("vocab_size"), "tied": f.flag("tie_word_embeddings"),
        "activation": f.activation("hidden_act"), "attention_dropout": f.fraction("attention_dropout"),
        "switches": frozenset(switches), "sizes": {**mamba2(f, hidden), "ra": f.count("adapter_rank")}}


def shared(kinds: tuple[str, ...], blocks: int) -> tuple[str, ...]:
    """Each hybrid layer with its number and its block's; see architectures/zamba2.py. At most as many as are listed."""
    numbers = iter(range(len(kinds)))
    return tuple(f"full, {i} of {i % blocks}" if kind == "hybrid" else kind for kind in kinds
                 for i in ([next(numbers)] if kind == "hybrid" else [0]))


def mamba2(f: Fields, hidden: int) -> dict[str, int]:
    """Letters of its Mamba 2, whose convolution has biases whatever the file says. Errors: Impossible."""
    heads, groups, inner = f.count("n_mamba_heads"), f.count("mamba_ngroups"), f.count("mamba_expand") * hidden
    size = f.count("mamba_headdim", null=inner // heads)
    if size * heads != inner or heads % groups:
        raise Impossible(f"{f.file}: {f.said('mamba_expand')} times {f.said('hidden_size')} must be "
                         f"{f.said('n_mamba_heads')} times mamba_headdim {size}, and {f.said('mamba_ngroups')} divide "
                         "the heads")
    return {"am": heads, "rm": heads // groups, "em": size, "Gm": groups, "o": f.count("mamba_d_state"),
            "q": f.count("mamba_d_conv"), "cm": f.count("chunk_size")}
