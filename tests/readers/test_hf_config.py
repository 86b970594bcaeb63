"""Dimensions read from config.json, against the classes of transformers that they mirror."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
from pathlib import Path
from typing import Any

import pytest

from peakmem.errors import Impossible, UnknownName, Unreadable
from peakmem.model import Model
from peakmem.readers import read_model
from peakmem.readers.defaults import ALIASES, DEFAULTS
from peakmem.readers.hf_config import FAMILIES, NESTED, NO_CLASS, OLD_NAMES, from_config
from tests.conftest import CONFIGS, NO_DEFAULT

transformers = pytest.importorskip("transformers")
CLASSED = tuple(kind for kind in FAMILIES if kind not in NO_CLASS)
OURS = sorted(p for p in CONFIGS.glob("*.json") if json.loads(p.read_text()).get("model_type") in CLASSED)
KNOWN = {*FAMILIES, *NESTED, *OLD_NAMES}
OTHERS = sorted(p for p in CONFIGS.glob("*.json") if json.loads(p.read_text()).get("model_type") not in KNOWN)


OWN_WORDS = {"deepseek_v2", "deepseek_v3", "deepseek_v4", "glm_moe_dsa", "glm4_moe_lite", "mimo_v2_flash",
             "gemma4_text", "llama4_text", "qwen3_next", "mamba", "mamba2", "jamba", "nemotron_h",
             "granitemoehybrid", "bamba", "falcon_h1", "falcon_mamba", "zamba2", "lfm2", "lfm2_moe"}
"""Families whose heads and layers have names of their own: tests/architectures/test_recent.py and test_hybrids.py
compare parameters."""


def theirs(config: dict[str, Any]) -> Any:
    """transformers' own configuration object."""
    config = {k: v for k, v in config.items() if k not in ("quantization_config", "auto_map")}
    return transformers.AutoConfig.for_model(config.pop("model_type"), **config)


def same(model: Model, config: Any) -> None:
    """Every dimension that transformers computes is ours."""
    get = lambda *names: next((getattr(config, n) for n in names if getattr(config, n, None) is not None), None)  # noqa: E731
    heads = get("num_attention_heads")
    if "encoder_decoder" in model.switches:
        stacks = [get("num_layers", "encoder_layers"), get("num_decoder_layers", "decoder_layers")]
        assert model.layers == len(model.layer_kinds) == sum(stacks)
        assert (model.hidden, model.heads, model.vocabulary) == (config.hidden_size, heads, config.vocab_size)
        return
    if model.architecture in ("resnet", "convnext", "convnextv2"):
        assert (model.layers, model.hidden) == (sum(config.depths), config.hidden_sizes[-1])
        assert (model.classes, model.channels) == (config.num_labels, config.num_channels)
        return
    if model.towers:
        image, config = config.vision_config, config.text_config
        tower = model.towers[0]
        depth = getattr(image, "num_hidden_layers", None) or image.depth
        assert (tower.layers, tower.hidden) == (depth, getattr(image, "embed_dim", image.hidden_size))
        assert model.layers == tower.layers + config.num_hidden_layers
        assert (model.hidden, model.vocabulary) == (config.hidden_size, config.vocab_size)
        return
    assert model.layers == config.num_hidden_layers
    assert model.hidden == config.hidden_size
    if model.architecture in OWN_WORDS:
        assert (model.vocabulary, model.tied) == (config.vocab_size, config.tie_word_embeddings)
        return
    assert model.heads == heads
    alone = model.architecture == "falcon" and config.multi_query and not config.new_decoder_architecture
    assert model.kv_heads == (1 if alone else get("num_key_value_heads", "num_kv_heads") or heads)
    assert model.head_size == (get("head_dim") or config.hidden_size // heads)
    assert model.vocabulary == (get("vocab_size") or 0)
    assert model.tied == bool(getattr(config, "tie_word_embeddings", False))
    if model.architecture in ("vit", "deit", "dinov2", "dinov2_with_registers"):
        assert (model.image, model.patch, model.channels, model.classes) == (
            config.image_size,
            config.patch_size,
            config.num_channels,
            config.num_labels,
        )
        tokens = 2 if model.architecture == "deit" else 1
        assert model.positions == (config.image_size // config.patch_size) ** 2 + tokens
    if model.architecture in ("gpt2", "bert"):
        assert model.positions == config.max_position_embeddings
    if model.architecture == "bert":
        assert model.token_types == config.type_vocab_size
    wide = get("moe_intermediate_size", "intermediate_size", "ffn_dim", "ffn_hidden_size", "n_inner")
    wanted = wide or getattr(config, "mlp_ratio", 4) * config.hidden_size
    assert (model.expert_feed_forward or model.feed_forward) == wanted
    if model.experts:
        assert (model.experts, model.experts_per_token) == (
            get("num_local_experts", "num_experts"),
            config.num_experts_per_tok,
        )
    if model.architecture not in ("bloom", "mpt"):  # theirs is no field
        assert model.activation == get("hidden_activation", "hidden_act", "activation_function", "activation")
    kinds = getattr(config, "layer_types", None)
    if kinds:
        assert expanded(model) == tuple(kind.removesuffix("_attention") for kind in kinds)
    elif model.architecture != "qwen3_moe":
        assert model.window == (getattr(config, "sliding_window", None) or 0)
    if model.window:
        assert model.window == config.sliding_window


def expanded(model: Model) -> tuple[str, ...]:
    """One word for each layer, also where all are alike."""
    kinds = tuple(kind.partition(",")[0] for kind in model.layer_kinds)
    return kinds or (("sliding" if model.window else "full"),) * model.layers


@pytest.mark.parametrize("path", OURS, ids=lambda p: p.stem)
def test_real_files(path: Path) -> None:
    same(read_model(path), theirs(json.loads(path.read_text())))


@pytest.mark.parametrize("path", OTHERS, ids=lambda p: p.stem)
def test_an_unknown_architecture_is_refused_by_name(path: Path) -> None:
    kind = json.loads(path.read_text()).get("model_type")
    with pytest.raises(UnknownName if kind else Unreadable, match=kind or "model_type is missing"):
        read_model(path)


@pytest.mark.parametrize("kind", CLASSED)
def test_an_empty_file_means_the_class_defaults(kind: str) -> None:
    config = {"model_type": kind, **NO_DEFAULT.get(kind, {})}
    real = theirs(config)
    same(from_config(config), real.text_config if kind in NESTED else real)


SIZE_FIELDS = {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "n_embd",
               "n_layer", "n_head", "d_model", "n_layers", "n_heads", "ffn_dim", "d_ff", "num_layers", "num_experts",
               "num_local_experts", "n_routed_experts", "moe_intermediate_size", "embedding_size", "image_size"}


@pytest.mark.parametrize("kind", CLASSED)
def test_sizes_that_the_file_does_not_give_are_named(kind: str) -> None:
    config = {"model_type": kind, **NO_DEFAULT.get(kind, {})}
    for name, value in DEFAULTS[kind].items():
        if name in SIZE_FIELDS and type(value) is int and name not in config:
            assert f" {name} {value:,}" in assumed(config)
            assert f" {name} " not in assumed({**config, name: value})
            assert f" {name} " not in "".join(from_config(config, whole=True).notes)


def assumed(config: dict[str, Any]) -> str:
    return "\n".join(note for note in from_config(config).notes if note.startswith("not in "))


def test_absent_sizes_are_named_with_their_part_of_the_file() -> None:
    nested = {"model_type": "gemma3", "text_config": {"hidden_size": 2560, "num_hidden_layers": 34}}
    assert "not in text_config" in assumed(nested) and "head_dim 256" in assumed(nested)
    llava = read_model(CONFIGS / "llava-1.5-7b.json").notes
    assert any("not in text_config" in note and "hidden_size 4,096" in note for note in llava)
    assert "num_key_value_heads 32" in assumed({"model_type": "llama"})
    assert "n_inner 3,072" in assumed({"model_type": "gpt2"})
    assert "num_labels 2" in assumed({"model_type": "vit"})


@pytest.mark.parametrize("kind", NO_DEFAULT)
def test_a_size_that_no_default_stands_for_is_missing(kind: str) -> None:
    with pytest.raises((Unreadable, Impossible), match="|".join(words_in(NO_DEFAULT[kind]))):
        from_config({"model_type": kind})


def words_in(config: dict[str, Any]) -> list[str]:
    """The names of all fields, those of nested parts too."""
    return [word for name, value in config.items()
            for word in (name, *(words_in(value) if isinstance(value, dict) else ()))]


@pytest.mark.parametrize("kind", CLASSED)
def test_defaults_are_those_of_the_class(kind: str) -> None:
    cls = transformers.models.auto.configuration_auto.CONFIG_MAPPING[kind]
    known = {f.name: f.default for f in dataclasses.fields(cls)}
    assert {name: known[name] if name in known else undeclared(cls, name) for name in DEFAULTS[kind]} \
        == dict(DEFAULTS[kind])


def undeclared(cls: type, name: str) -> None:
    """What a field means that the class does not declare: its model must read it with getattr, None unless given."""
    modeling = importlib.import_module(cls.__module__.replace(".configuration_", ".modeling_"))
    assert f'getattr(config, "{name}", None)' in inspect.getsource(modeling), f"{cls.__name__} does not know {name}"


@pytest.mark.parametrize("kind", CLASSED)
def test_aliases_are_those_of_the_class(kind: str) -> None:
    cls = transformers.models.auto.configuration_auto.CONFIG_MAPPING[kind]
    sizes = {
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_experts",
        "num_experts_per_tok",
        "num_local_experts",
        "max_position_embeddings",
        "head_dim",
        "num_key_value_heads",
        "intermediate_size",
        "vocab_size",
    }
    both = {frozenset(pair) for pair in cls.attribute_map.items() if set(pair) & sizes}
    assert both == {frozenset(pair) for pair in ALIASES.get(kind, {}).items()}


LAYERED = [
    {"model_type": "qwen2", "num_hidden_layers": 6, "use_sliding_window": True, "max_window_layers": 2},
    {"model_type": "qwen2", "num_hidden_layers": 6, "use_sliding_window": True, "max_window_layers": 0},
    {"model_type": "qwen2", "num_hidden_layers": 6, "use_sliding_window": True, "max_window_layers": 9},
    {"model_type": "qwen2", "num_hidden_layers": 6, "use_sliding_window": True, "sliding_window": None},
    {"model_type": "qwen3", "num_hidden_layers": 6, "use_sliding_window": False, "sliding_window": 128},
    {
        "model_type": "qwen3",
        "num_hidden_layers": 2,
        "use_sliding_window": True,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    {"model_type": "gemma2", "num_hidden_layers": 5},
    {"model_type": "gemma2", "num_hidden_layers": 2, "layer_types": ["full_attention", "full_attention"]},
    {"model_type": "gemma3_text", "num_hidden_layers": 13},
    {"model_type": "gemma3_text", "num_hidden_layers": 13, "sliding_window_pattern": 4},
    {"model_type": "gemma3_text", "num_hidden_layers": 3, "sliding_window_pattern": 1},
    {"model_type": "gemma3_text", "use_bidirectional_attention": True, "sliding_window": 512},
    {"model_type": "mistral", "sliding_window": None},
    {"model_type": "phi3", "sliding_window": 2047},
    {"model_type": "gpt2", "hidden_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "n_embd": 128},
    {"model_type": "mixtral", "num_experts": 4},
    {"model_type": "qwen3_moe", "num_local_experts": 16},
    {"model_type": "qwen3_moe", "head_dim": 128},
    {"model_type": "llama", "head_dim": 96, "num_key_value_heads": 4},
    {"model_type": "llama", "num_key_value_heads": None, "num_attention_heads": 16},
    {"model_type": "vit", "id2label": {"0": "cat", "1": "dog", "2": "cow"}},
    {"model_type": "vit", "num_labels": 7},
    {"model_type": "vit", "image_size": 100, "patch_size": 16},
    {"model_type": "opt", "ffn_dim": 100},
]


@pytest.mark.parametrize("config", LAYERED, ids=lambda c: ",".join(f"{k}={v}" for k, v in c.items())[:60])
def test_kinds_of_layers_and_aliases(config: dict[str, Any]) -> None:
    same(from_config(config), theirs(config))
