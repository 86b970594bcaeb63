"""Nemotron-NAS (Llama-3.3-Nemotron-Super): Llama whose layers each have a size of their own, or are left out in part.

Source: configuration_decilm.py, block_config.py and modeling_decilm.py in nvidia/Llama-3_3-Nemotron-Super-49B-v1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peakmem.errors import Impossible
from peakmem.readers.fields import Fields
from peakmem.readers.shared import Sizes, even, head_size, layers, rope_switches

SILENT = ("replace_with_linear", "sparsify", "window_length", "num_sink_tokens", "use_prefill_window_in_sink_attention",
          "unshifted_sink")
"""Parts of a block that make another network of it."""


def nemotron_nas(f: Fields) -> Sizes:
    """One entry of `block_configs` for each layer: key/value heads and feed-forward, or neither."""
    heads, count, hidden = f.count("num_attention_heads"), layers(f), f.count("hidden_size")
    blocks = f.value("block_configs")
    if not isinstance(blocks, list) or len(blocks) != count:
        raise f.wrong("block_configs", f"give a list with one object for each of {count:,} layers")
    kinds, sizes = [], dict[str, int]()
    for block in blocks:
        kept, wide = kv_heads(f, block, heads), feed_forward(f, block, hidden)
        if kept:
            sizes[letter("k", kept)] = kept
        if wide:
            sizes[letter("f", wide)] = wide
        kinds.append(f"{letter('k', kept) if kept else 'none'} {letter('f', wide) if wide else 'none'}")
    if not any(name[0] == "k" for name in sizes):
        raise Impossible(f"{f.file}: block_configs leaves attention out in every layer")
    fewest = min(size for name, size in sizes.items() if name[0] == "k")
    f.used |= {"intermediate_size", "num_key_value_heads"}
    f.notes.append("its code lies beside its weights; counted and run as transformers 5.24 runs Llama, in these sizes")
    switches = {switch for field, switch in (("attention_bias", "attention_bias"), ("attention_bias", "output_bias"),
                                             ("mlp_bias", "mlp_bias")) if f.flag(field)}
    switches |= {f"whole_{name}" for name, size in sizes.items() if name[0] == "k" and size == heads}
    return {
        "layers": count, "hidden": hidden, "heads": heads, "kv_heads": fewest,
        "head_size": even(f, "the head size", head_size(f)), "layer_kinds": tuple(kinds), "sizes": sizes,
        "feed_forward": max((size for name, size in sizes.items() if name[0] == "f"), default=1),
        "vocabulary": f.count("vocab_size"), "tied": f.flag("tie_word_embeddings"),
        "activation": f.activation("hidden_act"), "attention_dropout": f.fraction("attention_dropout"),
        "switches": frozenset(switches) | rope_switches(f),
    }


def letter(what: str, size: int) -> str:
    """Which letter a size of one kind of layer has."""
    return f"{what}{size}"


def part(f: Fields, block: Any, name: str) -> Mapping[str, Any] | None:
    """One half of a block; None where it is left out. Errors: Unreadable, Impossible."""
    half = block.get(name) if isinstance(block, dict) else None
    if not isinstance(half, dict):
        raise f.wrong("block_configs", "give attention and ffn, each an object, for each layer")
    for field in SILENT:
        if half.get(field):
            raise Impossible(f"{f.file}: block_configs has {field} in {name}, which peakmem does not know")
    return None if half.get("no_op") is True else half


def kv_heads(f: Fields, block: Any, heads: int) -> int:
    """Key/value heads of a layer; 0: no attention."""
    half = part(f, block, "attention")
    if half is None:
        return 0
    group = half.get("n_heads_in_group")
    if type(group) is not int or not 1 <= group <= heads or heads % group:
        raise f.wrong("block_configs", f"n_heads_in_group must divide the {heads} heads")
    return heads // group


def feed_forward(f: Fields, block: Any, hidden: int) -> int:
    """Width of a layer's feed-forward: 2/3 of `ffn_mult` hidden sizes, rounded up to 256; 0: none."""
    half = part(f, block, "ffn")
    if half is None:
        return 0
    times = half.get("ffn_mult")
    if isinstance(times, bool) or not isinstance(times, (int, float)) or not 0 < times < 1000:
        raise f.wrong("block_configs", "give ffn_mult as a number above 0 and below 1,000")
    return -(-int(2 * times * hidden / 3) // 256) * 256
