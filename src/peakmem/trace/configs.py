"""MODEL as the command line has it -> the configuration that transformers builds, and the `Model` that it describes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peakmem.errors import Impossible, printable
from peakmem.model import Model
from peakmem.readers import called
from peakmem.readers.defaults import DEFAULTS
from peakmem.readers.hf_config import from_config, translated
from peakmem.readers.json_file import read_json
from peakmem.tables.models import custom, find_model, presets
from peakmem.tables.resize import resize

KEYS: Mapping[str, tuple[str, ...]] = {
    "layers": ("num_hidden_layers", "n_layer", "num_layers", "n_layers"),
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "heads": ("num_attention_heads", "n_head", "num_heads", "n_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads"),
    "head_size": ("head_dim", "d_kv"),
    "feed_forward": ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "d_ff"),
    "vocabulary": ("vocab_size",),
    "positions": ("n_positions", "max_position_embeddings"),
    "window": ("sliding_window",),
    "experts": ("num_local_experts", "num_experts", "n_routed_experts"),
    "experts_per_token": ("num_experts_per_tok",),
    "expert_feed_forward": ("moe_intermediate_size",),
    "token_types": ("type_vocab_size",),
    "image": ("image_size",),
    "patch": ("patch_size",),
    "channels": ("num_channels",),
    "classes": ("num_labels",),
    "tied": ("tie_word_embeddings",),
}
"""Dimensions as configurations call them."""
_TOLD = ("name", "notes", "source", "longest")  # what two readings of one model may differ in


def read(word: str, is_file: bool, sizes: Mapping[str, Any]) -> tuple[dict[str, Any], Model]:
    """Return the configuration of a preset, of `custom` or of a file, with other sizes, and its model.

    Raises PeakmemError for an unknown name, a file that is none, sizes that contradict each other or that the
    configuration has no word for.
    """
    config, name = _config(word, is_file, sizes)
    model = from_config(config, name, printable(word)[1:-1])
    given = {key: value for key, value in sizes.items() if word != "custom" or key not in _OF_CUSTOM}
    if not given:
        return config, model
    wanted = resize(model, **given)
    config = _resized(config, model, wanted)
    return config, wanted


_OF_CUSTOM = ("layers", "hidden", "heads", "vocabulary", "positions", "tied")


def _config(word: str, is_file: bool, sizes: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    if word == "custom":
        own = {key: value for key, value in sizes.items() if key in _OF_CUSTOM and key != "tied"}
        made = custom(**own)
        if "tied" in sizes:
            made = resize(made, tied=sizes["tied"])
        config = {
            "model_type": "gpt2",
            "n_layer": made.layers,
            "n_embd": made.hidden,
            "n_head": made.heads,
            "vocab_size": made.vocabulary,
            "n_positions": made.positions,
            "tie_word_embeddings": made.tied,
        }
        return config, "custom"
    if not is_file:
        found = find_model(word)
        return dict(presets()[found.name].config), found.name
    given = read_json(word)
    from_config(given, called(word), printable(word)[1:-1])  # refuses what is no configuration
    return translated(given, printable(word)[1:-1])[0], called(word)


def _resized(config: dict[str, Any], model: Model, wanted: Model) -> dict[str, Any]:
    known = {**DEFAULTS[model.architecture], **config}
    changed = dict(config)
    if len(wanted.layer_kinds) != len(model.layer_kinds):
        changed.pop("layer_types", None)  # the class makes them anew
    for field, keys in KEYS.items():
        if getattr(wanted, field) == getattr(model, field):
            continue
        key = next((key for key in keys if key in known), keys[0])
        changed[key] = getattr(wanted, field)
    if wanted.vocabulary != model.vocabulary:
        changed["pad_token_id"] = None  # it changes no size, and may lie beyond the new vocabulary
    if dimensions(from_config(changed, model.name)) != dimensions(wanted):
        raise Impossible(
            f"{model.name}: its configuration has no word for these dimensions; write a config.json and "
            "give that to trace"
        )
    return changed


def dimensions(model: Model) -> dict[str, Any]:
    """Return what makes a model's size."""
    return {field: value for field, value in vars(model).items() if field not in _TOLD}
