"""One GPU's part: what is divided, by the names that parameters have; per family, or refused in one line."""

from __future__ import annotations

import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from peakmem.architectures import code_of
from peakmem.errors import Impossible
from peakmem.estimate import estimate
from peakmem.estimate.interpret import interpret
from peakmem.estimate.replay import value
from peakmem.estimate.server import bytes_per_token
from peakmem.estimate.settings import structure_of
from peakmem.model import Model
from peakmem.readers.hf_config import from_config
from peakmem.setup import Setup
from peakmem.tables.models import find_model, presets

CONFIGS = Path(__file__).parents[1] / "data" / "configs"
TOWER = re.compile(r"visual\.|vision_tower\.|embed_vision\.|\.linear\.weight")
WHOLE = re.compile(r"layernorm|layer_norm|ln_|_layernorm|\bnorm\.|router\.|(mlp|feed_forward)\.gate\.|expert_gate|"
                   r"[qk]v?_a_|indexer\.|(o_proj|dense|c_proj|fc2|dense_4h_to_h|down_proj)[._]bias")
NORMS = re.compile(r"[qk]_norm\.")  # over a head, whole, or over all of them, divided as they are
KEYS = re.compile(r"[kv]_proj\.")
MIMO = {"model_type": "mimo_v2_flash", "hidden_size": 512, "num_hidden_layers": 7, "num_attention_heads": 16,
        "num_key_value_heads": 2, "head_dim": 48, "v_head_dim": 32, "intermediate_size": 256, "vocab_size": 1024,
        "moe_intermediate_size": 64, "n_routed_experts": 8, "num_experts_per_tok": 2}


def counts(model: Model, gpus: int) -> dict[str, int]:
    """Elements of every parameter, by name."""
    structure, numbers = structure_of(model, Setup.of(run="inference", sequence=64, tensor_parallel=gpus))
    found = {}
    for name, p in interpret(structure).parameters.items():
        found[name] = 1
        for letter in (letter.rstrip("'") for group in p.dims for letter in group):
            found[name] *= numbers[letter] if letter in numbers else value(letter, numbers)
    return found


def per_token(model: Model, gpus: int) -> int:
    return bytes_per_token(*structure_of(model, Setup.of(run="inference", precision="bf16", tensor_parallel=gpus)))


def first_of_each_family() -> list[str]:
    found: dict[str, str] = {}
    for name in presets():
        model = find_model(name)
        if model.heads % 2 == 0 or not model.vocabulary:
            found.setdefault(model.architecture, name)
    return list(found.values())


@pytest.mark.parametrize("name", [*first_of_each_family(), "nemotron-super-49b.json", "kimi-k2.json"])
def test_every_parameter_is_divided_as_its_name_says_or_the_model_is_refused(name: str) -> None:
    model = Model.read(CONFIGS / name) if name.endswith(".json") else find_model(name)
    whole = counts(model, 1)
    try:
        part = counts(model, 2)
    except Impossible as refused:
        assert str(refused).startswith("--tensor-parallel: peakmem divides decoders like Llama")
        with pytest.raises(Impossible, match="--tensor-parallel"):
            estimate(model, run="inference", tensor_parallel=2)
        return
    assert part.keys() == whole.keys()
    for parameter, elements in part.items():
        if NORMS.search(parameter):
            assert elements in (whole[parameter], whole[parameter] / 2)
        elif TOWER.search(parameter) or WHOLE.search(parameter) or KEYS.search(parameter) and model.kv_heads == 1:
            assert elements == whole[parameter], parameter
        else:  # an odd vocabulary leaves one row more
            odd = model.hidden // 2 if model.vocabulary % 2 and not whole[parameter] % model.vocabulary else 0
            assert elements == whole[parameter] // 2 + odd, parameter


UNDIVIDED = set("gpt2 gpt_bigcode gpt_neo gptj opt mpt jamba qwen3_next qwen3_5 qwen3_5_moe_text deepseek_v4 llava t5 "
                "whisper bart m2m_100".split())
"""Architectures that generate, and are counted on one GPU only."""


def test_most_decoders_are_divided() -> None:
    """What does not generate is served whole."""
    for name in first_of_each_family():
        model = find_model(name)
        whole = model.architecture in UNDIVIDED or not getattr(code_of(model.architecture), "GENERATES", True)
        with pytest.raises(Impossible) if whole else nullcontext():
            structure_of(model, Setup.of(run="inference", sequence=64, tensor_parallel=2))


@pytest.mark.parametrize("name", ["vit-base", "bert-base", "clip-vit-base-patch32", "resnet-50", "mamba-130m",
                                  "whisper-tiny"])
def test_what_is_not_divided_is_refused(name: str) -> None:
    with pytest.raises(Impossible, match="divides decoders like Llama, not"):
        estimate(name, run="inference", tensor_parallel=2)


def test_gemma_4_divides_the_heads_of_both_kinds_of_layers() -> None:
    """50 sliding layers with 16 heads of 256, 10 full ones with 4 of 512, which 8 GPUs replicate."""
    model = Model.read(CONFIGS / "gemma-4-31b-nvfp4.json")
    assert [per_token(model, gpus) for gpus in (1, 2, 4, 8)] == [
        2 * 2 * (50 * 16 // gpus * 256 + 10 * max(4 // gpus, 1) * 512) for gpus in (1, 2, 4, 8)]


def test_nemotron_divides_what_each_layer_has() -> None:
    model = Model.read(CONFIGS / "nemotron-super-49b.json")
    layers = sum(not kind.startswith("none") for kind in model.layer_kinds)
    assert [per_token(model, gpus) for gpus in (1, 4, 8, 16)] == [
        2 * 2 * layers * 128 * kept for kept in (8, 2, 1, 1)]
    parts = [estimate(model, run="inference", tensor_parallel=gpus).parameters.total for gpus in (1, 8)]
    assert parts[1] < 1.001 * parts[0] / 8
    with pytest.raises(Impossible, match="feed-forward size of a layer"):
        structure_of(model.changed(sizes={**model.sizes, "f2816": 2818}), Setup.of(run="inference", tensor_parallel=4))


@pytest.mark.parametrize("gpus", [2, 4, 8])
def test_sliding_layers_with_more_heads_divide_their_own(gpus: int) -> None:
    """MiMo-V2-Flash: 2 heads in 2 full layers, 4 in 5 sliding ones; keys of 48, values of 32."""
    model = from_config(MIMO)
    full = sum(kind.startswith("full") for kind in model.layer_kinds)
    heads = full * max(2 // gpus, 1) + (7 - full) * max(4 // gpus, 1)
    assert per_token(model, gpus) == 2 * heads * (48 + 32)


def test_a_letter_that_is_not_known_is_refused() -> None:
    model: Any = find_model("llama-3.1-8b").changed(sizes={"new": 4})
    with pytest.raises(Impossible, match="not llama"):
        structure_of(model, Setup.of(run="inference", tensor_parallel=2))


def test_a_tower_is_whole_and_the_notes_say_so() -> None:
    notes = "\n".join(estimate(Model.read(CONFIGS / "qwen2.5-vl-7b.json"), run="inference", tensor_parallel=2).notes)
    assert "the tower beside the decoder is whole on each" in notes
    assert "whole on each" not in "\n".join(estimate("llama-3.1-8b", run="inference", tensor_parallel=2).notes)
