"""Which linear layers are packed: those that transformers itself replaces, in every family."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest

from peakmem.architectures import code_of
from peakmem.errors import Impossible
from peakmem.estimate.packed import Packed
from peakmem.estimate.parameters import define
from peakmem.estimate.settings import structure_of
from peakmem.estimate.tape import Tape, writing
from peakmem.estimate.whole import Whole
from peakmem.readers.hf_config import CLASSES, from_config
from peakmem.setup import Setup
from tests.architectures import (
    test_classics,
    test_classifiers,
    test_decoders,
    test_encoder_decoders,
    test_hybrids,
    test_kin,
    test_moe,
    test_newest,
    test_open_models,
    test_recent,
    test_towers,
)
from tests.estimate.traced_module import estimated, traced

MODULES = ((test_classics, ""), (test_decoders, "SIZES"), (test_encoder_decoders, ""), (test_kin, "BASE"),
           (test_moe, "SIZES"), (test_newest, ""), (test_open_models, ""), (test_classifiers, ""),
           (test_recent, "BASE"), (test_hybrids, "BASE"), (test_towers, ""))
FAMILIES: dict[str, dict[str, Any]] = {
    name: (getattr(module, sizes) if sizes else {}) | config
    for module, sizes in MODULES for name, config in module.VARIANTS.items()}
NONE = {name for name in FAMILIES.keys() - test_hybrids.VARIANTS.keys() if name.startswith("falcon")}
"""FalconLinear is made from nn.Linear."""
FAIL = {"mamba", "zamba2", "zamba2, adapters"}
"""Mamba multiplies by the packed weight itself; how Zamba2's shared blocks are packed is not known."""
SEQUENCE = 12


@pytest.mark.parametrize("name", sorted(FAMILIES.keys() - FAIL))
def test_packed_layers_are_those_that_transformers_replaces(name: str) -> None:
    config = FAMILIES[name]
    want = replaced(config)
    if name in NONE:
        assert not want
        with pytest.raises(Impossible, match="no weights that it would pack"):
            packed(config)
    else:
        assert want
        assert packed(config) == want


def replaced(config: dict[str, Any]) -> Counter[str]:
    """The layers that become 4-bit ones, and how often, by transformers' own code on the meta device."""
    bnb, torch = pytest.importorskip("bitsandbytes"), pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from transformers.integrations.bitsandbytes import replace_with_bnb_linear
    from transformers.quantizers.base import HfQuantizer

    given = dict(config)
    settings = transformers.AutoConfig.for_model(given.pop("model_type"), **given)
    with torch.device("meta"):
        kind: Any = getattr(transformers, CLASSES.get(config["model_type"], ""), None)
        real = kind(settings) if kind else transformers.AutoModelForCausalLM.from_config(settings)
    kept = HfQuantizer.get_modules_to_not_convert(real, None, real._keep_in_fp32_modules)
    replace_with_bnb_linear(real, kept, transformers.BitsAndBytesConfig(load_in_4bit=True))
    return counted(name for name, module in real.named_modules() if isinstance(module, bnb.nn.Linear4bit))


def packed(config: dict[str, Any]) -> Counter[str]:
    """The same from the estimate."""
    setup = Setup.of(run="inference", sequence=SEQUENCE, generate=1, weights="nf4")
    structure, _ = structure_of(from_config(config), setup, unfold=True)
    tape = Tape(structure.ones)
    tape.parts = Whole(tape, structure)
    with writing(tape):
        define(tape, structure, code_of(structure.architecture))
    return counted(p.full_name.removesuffix(".weight") for p in tape.parameters.values() if isinstance(p, Packed))


def counted(names: Iterable[str]) -> Counter[str]:
    return Counter(re.sub(r"\.(\d+|\*)\.", ".*.", name) for name in names)


def test_mamba_in_few_bits_is_refused_as_transformers_fails_there() -> None:
    with pytest.raises(Impossible, match="dt_proj"):
        packed(FAMILIES["mamba"])


SIZES: dict[str, Any] = {"hidden_size": 48, "moe_intermediate_size": 24}  # grouped products want multiples of 8
STEPS: dict[str, dict[str, Any]] = {
    "qwen3_moe, every second": {}, "deepseek_v2, biases": SIZES, "qwen3_next": SIZES, "glm": SIZES, "glm4_moe": {},
    "jamba": {}, "granite 4": SIZES | {"mamba_d_head": 24}}
LOADED: dict[str, dict[str, Any]] = {
    "nf4": {"weights": "nf4-double"}, "autocast": {"weights": "nf4", "precision": "amp-bf16", "checkpoint": "full"}}


@pytest.mark.parametrize("loaded", LOADED)
@pytest.mark.parametrize("name", STEPS)
def test_a_step_on_packed_shared_experts_and_feed_forwards_equals_the_real_layers(name: str, loaded: str) -> None:
    pytest.importorskip("bitsandbytes")
    pytest.importorskip("peft")
    usual = {"sequence": 24, "batch": 2, "precision": "bf16", "lora_rank": 4, "optimizer_implementation": "foreach"}
    setup, config = Setup.of(**usual | LOADED[loaded]), FAMILIES[name] | STEPS[name]
    real, ours = traced(config, setup, lambda model: model), estimated(config, setup)
    for phase in ("forward", "backward", "optimizer", "clear"):
        assert ours[phase] == real[phase], phase


@pytest.mark.parametrize("loaded", LOADED)
def test_a_step_with_packed_time_steps_equals_the_real_layers(loaded: str) -> None:
    """Falcon-Mamba runs dt_proj as a layer where it is packed; peft adapts no out_proj of it."""
    pytest.importorskip("bitsandbytes")
    pytest.importorskip("peft")
    setup = Setup.of(**{"sequence": 5, "batch": 2, "precision": "bf16", "attention": "eager", "lora_rank": 4,
                        "optimizer_implementation": "foreach", "lora_targets": ("in_proj", "x_proj")} | LOADED[loaded])
    config = FAMILIES["falcon_mamba"]
    real, ours = traced(config, setup, lambda model: model), estimated(config, setup)
    for phase in ("forward", "backward", "optimizer", "clear"):
        assert ours[phase] == real[phase], phase
