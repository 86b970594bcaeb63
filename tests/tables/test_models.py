"""Presets have the sizes of the real models; what is resized stays a model."""

from __future__ import annotations

from typing import Any

import pytest

from peakmem.errors import Impossible, PeakmemError, UnknownName
from peakmem.immutable import replace
from peakmem.readers import read_model
from peakmem.readers.hf_config import CLASSES
from peakmem.tables.models import Preset, _key, custom, find_model, presets
from peakmem.tables.resize import resize
from tests.conftest import CONFIGS

ROWS = list(presets().values())


def elements(config: dict[str, Any]) -> int:
    """Unique parameters of the class that transformers builds."""
    torch = pytest.importorskip("torch")
    if "_class_name" in config:
        named = getattr(pytest.importorskip("diffusers"), config.pop("_class_name"))
        with torch.device("meta"):
            return sum(parameter.numel() for parameter in named(**config).parameters())
    transformers = pytest.importorskip("transformers")
    kind = config.pop("model_type")
    config.pop("rope_scaling", None)  # the file's lists of factors, which change no parameter
    settings = transformers.AutoConfig.for_model(kind, **config)
    with torch.device("meta"):
        loader = transformers.AutoModelForCausalLM.from_config
        model = getattr(transformers, CLASSES[kind])(settings) if kind in CLASSES else loader(settings)
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.name)
def test_the_parameter_count_is_that_of_transformers(row: Preset) -> None:
    layers = next((name for name in ("n_layer", "n_layers", "num_hidden_layers") if name in row.config), "")
    if not layers or find_model(row.name).layer_kinds:  # layers differ, or the class says how many: all are built
        assert elements(dict(row.config)) == row.parameters
        return
    one, two = (elements({**row.config, layers: n}) for n in (1, 2))
    assert one + (row.config[layers] - 1) * (two - one) == row.parameters


@pytest.mark.parametrize("row", ROWS, ids=lambda r: r.name)
def test_every_row(row: Preset) -> None:
    model = find_model(row.name)
    assert (model.name, model.source) == (row.name, row.source)
    assert not [note for note in model.notes if "not used" in note]
    for alias in row.aliases:
        found = find_model(alias)
        assert replace(found, notes=model.notes) == model
        assert (f"{alias} is taken as {row.name}: the same sizes" in found.notes) == (
            _key(alias) != _key(row.name))


FILES = {
    "llama-2-7b": "llama-2-7b",
    "llama-3.1-8b": "llama-3.1-8b",
    "llama-3.1-70b": "llama-3.1-70b",
    "llama-3.1-405b": "llama-3.1-405b",
    "llama-3.2-1b": "llama-3.2-1b",
    "tinyllama-1.1b": "tinyllama-1.1b",
    "mistral-7b-v0.1": "mistral-7b-v0.1",
    "mixtral-8x7b": "mixtral-8x7b",
    "qwen2-0.5b": "qwen2-0.5b",
    "qwen2-7b": "qwen2-7b",
    "qwen3-0.6b": "qwen3-0.6b",
    "qwen3-32b": "qwen3-32b",
    "qwen3-30b-a3b": "qwen3-30b-a3b",
    "qwen3-235b-a22b": "qwen3-235b-a22b-fp8",
    "phi-3.5-mini": "phi-3.5-mini",
    "gemma-2b": "gemma-2b-mqa",
    "gemma-2-9b": "gemma-2-9b",
    "gemma-3-1b": "gemma-3-1b",
    "gpt2": "gpt2",
    "redpajama-3b": "redpajama-3b-gptneox",
    "vit-base": "vit-base-patch16-224",
    "olmo-2-7b": "olmo2-7b",
    "stablelm-3b": "stablelm-3b",
    "falcon-7b": "falcon-7b",
    "bloom-560m": "bloom-560m",
    "mpt-7b": "mpt-7b",
    "phi-2": "phi-2-oldstyle",
    "santacoder": "gpt-bigcode-1b-mqa",
    "jamba-1.5-mini": "jamba-1.5-mini",
}


@pytest.mark.parametrize(("name", "file"), FILES.items())
def test_a_preset_is_its_file(name: str, file: str) -> None:
    apart = {"name": "", "source": "", "notes": (), "stored": None}  # a preset is not packed, whatever its file is
    assert find_model(name).changed(**apart) == read_model(CONFIGS / f"{file}.json").changed(**apart)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("meta-llama/Meta-Llama-3-8B", "llama-3-8b"),
        ("Llama-2-7b-hf", "llama-2-7b"),
        ("google/gemma-2-2b-it", "gemma-2-2b"),
        ("GPT2", "gpt2"),
        ("gpt-2", "gpt2"),
        ("Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"),
        ("qwen3_8b", "qwen3-8b"),
        ("bert-base-uncased", "bert-base"),
        ("mistralai/Mistral-7B-v0.1", "mistral-7b-v0.1"),
        ("allenai/OLMo-2-1124-7B-Instruct", "olmo-2-7b"),
        ("stabilityai/stablelm-2-1_6b", "stablelm-2-1.6b"),
        ("tiiuae/falcon-7b-instruct", "falcon-7b"),
        ("bigscience/bloom", "bloom-176b"),
        ("microsoft/phi-1_5", "phi-1.5"),
        ("CohereForAI/c4ai-command-r-plus", "command-r-plus"),
        ("bigcode/starcoder", "starcoder-15b"),
        ("EleutherAI/gpt-j-6b", "gpt-j-6b"),
    ],
)
def test_names_that_people_type(typed: str, meant: str) -> None:
    assert find_model(typed).name == meant


@pytest.mark.parametrize(
    ("typed", "word"),
    [
        ("lama-3.1-8b", "Did you mean 'llama-3.1-8b'"),
        ("gpt3", "peakmem list models"),
        ("", "peakmem list models"),
        ("x" * 10**6, "unknown model"),
        ("\x1b[31m", "u001b"),
    ],
)
def test_unknown_names(typed: str, word: str) -> None:
    with pytest.raises(UnknownName) as error:
        find_model(typed)
    assert word in str(error.value).replace("x1b", "u001b") and len(str(error.value)) < 300


def test_aliases_do_not_collide() -> None:
    from peakmem.tables.models import _key

    keys = [_key(name) for row in ROWS for name in {row.name, *row.aliases}]
    assert len({(_key(name), row.name) for row in ROWS for name in {row.name, *row.aliases}}) == len(set(keys))


def test_custom() -> None:
    model = custom(layers=4, hidden=512, heads=8, vocabulary=1000)
    assert (model.architecture, model.feed_forward, model.head_size, model.tied) == ("gpt2", 2048, 64, True)
    for wrong in ({"hidden": 513}, {"layers": 0}, {"heads": "x"}, {"vocabulary": 10**10}, {"hidden": True}):
        with pytest.raises(PeakmemError):
            custom(**wrong)  # type: ignore[arg-type]


def test_what_follows_the_hidden_size() -> None:
    small = resize(find_model("llama-3.1-8b"), hidden=2048)
    assert (small.heads, small.kv_heads, small.head_size, small.feed_forward) == (16, 4, 128, 7168)
    assert len(small.notes) == 3
    given = resize(find_model("llama-3.1-8b"), hidden="2048", heads=32, kv_heads=8, feed_forward=8192)
    assert (given.heads, given.head_size, given.feed_forward) == (32, 64, 8192)


def test_what_else_follows() -> None:
    assert resize(find_model("vit-base"), image=384).positions == 577
    assert resize(find_model("opt-350m"), hidden=2048).sizes == {"e": 1024}
    moe = resize(find_model("qwen3-30b-a3b"), expert_feed_forward=100)
    assert moe.feed_forward == moe.expert_feed_forward == 100
    longer = resize(find_model("gemma-3-1b"), layers=40)
    assert [i for i, kind in enumerate(longer.layer_kinds) if kind == "full"] == [5, 11, 17, 23, 29, 35]
    assert len(resize(find_model("gemma-3-1b"), layers=3).layer_kinds) == 3
    assert resize(find_model("llama-3.1-8b"), tied="yes").tied and not resize(find_model("gpt2"), tied=False).tied
    assert resize(find_model("pythia-410m"), hidden=2048, heads=16).rotary_size == 32


@pytest.mark.parametrize(
    ("name", "given", "word"),
    [
        ("llama-3.1-8b", {"hidden": 5000}, "--heads"),
        ("llama-3.1-8b", {"heads": 12}, "--head-size"),
        ("llama-3.1-8b", {"kv_heads": 5}, "32"),
        ("llama-3.1-8b", {"experts": 3}, "no experts"),
        ("llama-3.1-8b", {"window": 3}, "no window"),
        ("llama-3.1-8b", {"hidden": "big"}, "whole number"),
        ("llama-3.1-8b", {"layers": 0}, "from 1"),
        ("llama-3.1-8b", {"layers": 10**10}, "from 1"),
        ("llama-3.1-8b", {"head_size": 127, "heads": 32}, "odd"),
        ("gpt2", {"kv_heads": 4}, "gpt2"),
        ("gpt2", {"heads": 12, "head_size": 32}, "must be"),
        ("mixtral-8x7b", {"experts": 1}, "--experts-per-token"),
        ("vit-base", {"tied": True}, "--tied"),
        ("vit-base", {"patch": 500}, "--patch"),
        ("gpt2", {"tied": 3}, "--tied"),
        ("gemma-3-1b", {"layers": 10**9}, "1,000,000"),
    ],
)
def test_what_cannot_be(name: str, given: dict[str, Any], word: str) -> None:
    with pytest.raises(Impossible) as error:
        resize(find_model(name), **given)
    assert word in str(error.value) and "\n" not in str(error.value)


def test_an_unknown_size() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'hidden'"):
        resize(find_model("gpt2"), hiden=3)


@pytest.mark.parametrize(("name", "size"), [("t5-base", "layers"), ("clip", "image"), ("llava", "layers"),
                                            ("resnet-50", "hidden"), ("whisper-tiny", "layers")])
def test_one_number_does_not_change_several_stacks(name: str, size: str) -> None:
    with pytest.raises(Impossible, match="config.json"):
        resize(find_model(name), **{size: 128})


def test_pictures_of_a_resnet_have_any_size() -> None:
    assert resize(find_model("resnet-50"), image=512, classes=10).image == 512


def test_the_beginning_of_names_finds_them() -> None:
    with pytest.raises(UnknownName, match="'llama-3-8b', 'llama-3-70b'"):
        find_model("llama3")
    with pytest.raises(UnknownName, match="Did you mean 'llama-3-8b'"):
        find_model("lama-3-8b")


def test_llama_3_is_not_3_1() -> None:
    model = find_model("meta-llama/Meta-Llama-3-8B-Instruct")
    assert model.name == "llama-3-8b" and "Meta-Llama-3-8B" in model.source
    assert "vicuna-7b is taken as llama-2-7b: the same sizes" in find_model("vicuna-7b").notes
