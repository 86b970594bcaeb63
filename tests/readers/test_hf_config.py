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
             "gemma4_text", "llama4_text", "qwen3_next", "mamba", "jamba", "nemotron_h"}
"""Families whose heads and layers have names of their own: tests/architectures/test_recent.py compares parameters."""


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
    if model.architecture == "resnet":
        assert (model.layers, model.hidden) == (sum(config.depths), config.hidden_sizes[-1])
        assert (model.classes, model.channels) == (config.num_labels, config.num_channels)
        return
    if model.towers:
        image, config = config.vision_config, config.text_config
        tower = model.towers[0]
        depth = getattr(image, "num_hidden_layers", None) or image.depth
        assert (tower.layers, tower.hidden) == (depth, image.hidden_size)
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
    if model.architecture == "vit":
        assert (model.image, model.patch, model.channels, model.classes) == (
            config.image_size,
            config.patch_size,
            config.num_channels,
            config.num_labels,
        )
        assert model.positions == (config.image_size // config.patch_size) ** 2 + 1
    if model.architecture in ("gpt2", "bert"):
        assert model.positions == config.max_position_embeddings
    if model.architecture == "bert":
        assert model.token_types == config.type_vocab_size
    wide = get("moe_intermediate_size", "intermediate_size", "ffn_dim", "ffn_hidden_size", "n_inner")
    wanted = wide or 4 * config.hidden_size
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


@pytest.mark.parametrize(("step", "dense"), [(1, []), (2, []), (1, [0, 2]), (3, [5]), (9, []), (1, [0, 1, 2, 3, 4, 5])])
def test_experts_sit_where_transformers_puts_them(step: int, dense: list[int]) -> None:
    torch = pytest.importorskip("torch")
    config = {
        "model_type": "qwen3_moe",
        "num_hidden_layers": 6,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "intermediate_size": 128,
        "vocab_size": 99,
        "decoder_sparse_step": step,
        "mlp_only_layers": dense,
    }
    with torch.device("meta"):
        built = transformers.AutoModelForCausalLM.from_config(theirs(config))
    real = tuple("moe" if hasattr(layer.mlp, "experts") else "dense" for layer in built.model.layers)
    model = from_config(config)
    assert (model.layer_kinds or (("moe" if model.experts else "dense"),) * 6) == real
    assert model.feed_forward == (128 if "dense" in real else 32)


@pytest.mark.parametrize(
    ("kind", "field", "bias"),
    [
        ("llama", "attention_bias", {"attention_bias", "output_bias"}),
        ("llama", "mlp_bias", {"mlp_bias"}),
        ("qwen3", "attention_bias", {"attention_bias", "output_bias"}),
        ("gemma", "attention_bias", {"attention_bias", "output_bias"}),
    ],
)
@pytest.mark.parametrize("value", [True, False])
def test_biases(kind: str, field: str, bias: set[str], value: bool) -> None:
    torch = pytest.importorskip("torch")
    small = {
        "model_type": kind,
        "num_hidden_layers": 1,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "head_dim": 16,
        "num_key_value_heads": 4,
        "intermediate_size": 64,
        "vocab_size": 99,
        field: value,
    }
    with torch.device("meta"):
        names = [n for n, _ in transformers.AutoModelForCausalLM.from_config(theirs(small)).named_parameters()]
    real = {
        switch
        for switch, name in (
            ("attention_bias", "q_proj.bias"),
            ("output_bias", "o_proj.bias"),
            ("mlp_bias", "up_proj.bias"),
        )
        if any(n.endswith(name) for n in names)
    }
    assert from_config(small).switches & {"attention_bias", "output_bias", "mlp_bias"} == real
    assert real == (bias if value else set())


def test_partial_rotation() -> None:
    assert from_config({"model_type": "gpt_neox"}).rotary_size == 24  # a quarter of 96
    assert from_config({"model_type": "gpt_neox", "rotary_pct": 1.0}).rotary_size == 0
    assert from_config({"model_type": "phi3", "partial_rotary_factor": 0.75}).rotary_size == 72
    inside = {"model_type": "phi3", "rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}
    assert from_config(inside).rotary_size == 48


def test_gemma_says_gelu_and_means_tanh() -> None:
    assert from_config({"model_type": "gemma", "hidden_act": "gelu"}).activation == "gelu_pytorch_tanh"


def test_opt_350m() -> None:
    model = from_config(
        {
            "model_type": "opt",
            "word_embed_proj_dim": 512,
            "hidden_size": 1024,
            "num_attention_heads": 16,
            "do_layer_norm_before": False,
        }
    )
    assert model.sizes == {"e": 512}
    assert not model.switches & {"norm_before", "final_norm"}
    assert model.positions == 2050


def test_the_text_part_of_gemma_3() -> None:
    nested = {
        "model_type": "gemma3",
        "architectures": ["Gemma3ForConditionalGeneration"],
        "torch_dtype": "bfloat16",
        "text_config": {"hidden_size": 2560, "num_hidden_layers": 34},
        "vision_config": {"hidden_size": 1152},
    }
    model = from_config(nested)
    assert (model.architecture, model.hidden, model.vocabulary, model.tied) == ("gemma3_text", 2560, 262208, True)
    assert any("text part only" in note for note in model.notes)
    assert not from_config({**nested, "tie_word_embeddings": False}).tied
    assert from_config({"model_type": "gemma3"}).hidden == 2304


def test_what_is_not_used_is_said() -> None:
    model = from_config(
        {
            "model_type": "llama",
            "torch_dtype": "float16",
            "wonder_size": 3,
            "another": None,
            "quantization_config": {"quant_method": "gptq", "bits": 3},
            "architectures": ["LlamaForSequenceClassification"],
        }
    )
    text = "\n".join(model.notes)
    for word in ("float16", "wonder_size", "gptq", "LlamaForSequenceClassification"):
        assert word in text
    assert "another" not in text
    assert len(model.notes) <= 6


def test_ordinary_files_need_no_notes() -> None:
    notes = read_model(CONFIGS / "gpt2.json").notes
    assert notes == ("not in the file, so transformers' default holds: n_inner 3,072, tie_word_embeddings true",)
    assert len(read_model(CONFIGS / "llama-3.1-8b.json").notes) == 1  # its dtype


def test_a_folder_and_a_file_have_the_same_model(tmp_path: Path) -> None:
    folder = tmp_path / "my-llama"
    folder.mkdir()
    (folder / "config.json").write_text((CONFIGS / "llama-3.2-1b.json").read_text())
    assert read_model(folder) == read_model(folder / "config.json") == Model.read(str(folder))
    assert read_model(folder).name == "my-llama"


@pytest.mark.parametrize("kind", ["bloom", "falcon"])
def test_an_old_name_of_the_hidden_size_wins(kind: str) -> None:
    """n_embed: the head size follows from it, too."""
    named = {"model_type": kind, "num_attention_heads": 6, "num_hidden_layers": 3, "vocab_size": 97}
    old, new = from_config(named | {"n_embed": 96}), from_config(named | {"hidden_size": 96})
    assert (old.hidden, old.head_size, old.heads) == (new.hidden, new.head_size, new.heads) == (96, 16, 6)


def test_parts_of_clip_under_their_older_names() -> None:
    """CLIPConfig takes text_config_dict, whole with its defaults, before text_config."""
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
    old = from_config({"model_type": "clip", "text_config_dict": small, "vision_config_dict": small,
                       "text_config": {"hidden_size": 48, "num_attention_heads": 4}})
    new = from_config({"model_type": "clip", "text_config": small, "vision_config": small})
    assert (old.hidden, old.layers, old.towers) == (new.hidden, new.layers, new.towers)


def test_an_unknown_family_says_how_to_go_on() -> None:
    with pytest.raises(UnknownName, match="To go on: the model_type of a class with the same layers"):
        from_config({"model_type": "foonet"})
