"""UNets and DiT against diffusers' own classes: parameters, every allocation of recorded steps, what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from peakmem.errors import PeakmemError
from peakmem.estimate import estimate
from peakmem.estimate.interpret import interpret
from peakmem.estimate.replay import compiled, replay
from peakmem.estimate.settings import structure_of
from peakmem.readers.hf_config import from_config
from peakmem.setup import Setup
from tests.architectures.test_towers import sides
from tests.diffusion import CONFIGS, compared, setup_of
from tests.reference_steps import DATA

RECORDS = {record["id"]: record for record in json.loads((DATA / "traced_diffusion.json").read_text())}
LISTED = [name for name, record in RECORDS.items() if "parameters" in record]


@pytest.mark.parametrize("name", LISTED)
def test_parameters_are_those_of_diffusers(name: str) -> None:
    """Name for name, shape for shape, in the order of definition."""
    model = from_config(dict(CONFIGS[RECORDS[name]["config"]]))
    structure, numbers = structure_of(model, Setup.of(sequence=7), unfold=True)
    ours: list[list[Any]] = []
    layers: dict[str, list[str]] = {}  # of each stack, in order
    for key, p in interpret(structure).parameters.items():
        found = layers.setdefault(p.full_name.partition(".*")[0], [])
        found += [] if key.partition(":")[0] in found else [key.partition(":")[0]]
        number = found.index(key.partition(":")[0])
        ours.append([p.full_name.replace("*", str(number)), list(sides(p.dims, numbers))])
    assert ours == RECORDS[name]["parameters"]


@pytest.mark.parametrize("name", RECORDS)
def test_every_allocation_is_the_real_model_s(name: str) -> None:
    for phase, (ours, want) in compared(RECORDS[name]).items():
        assert ours == want, phase


@pytest.mark.parametrize("name", RECORDS)
def test_layers_fold(name: str) -> None:
    levels = []
    for unfold in (False, True):
        model = from_config(dict(CONFIGS[RECORDS[name]["config"]]))
        structure, numbers = structure_of(model, setup_of(RECORDS[name]), unfold=unfold)
        levels.append(replay(compiled(interpret(structure)), numbers))
    assert levels[0] == levels[1]


@pytest.mark.parametrize(("name", "parameters"), [
    ("sd-1.5-unet", 859_520_964), ("sdxl-unet", 2_567_463_684), ("dit-xl-2", 749_826_464),
])
def test_a_preset_is_counted_and_answered(name: str, parameters: int) -> None:
    ledger = estimate(name, precision="amp-bf16", batch=2)
    assert ledger.parameters.total == parameters
    assert max(row.peak for row in ledger.chart) == ledger.totals.tensors
    assert [row.moment for row in ledger.chart] == ["start", "F1", "F2", "F3", "B3", "B2", "B1", "step", "clear"]
    assert "latents" in ledger.run["input"]


def test_a_larger_picture_and_a_longer_text_cost_more() -> None:
    unet = from_config(dict(CONFIGS["unet"]))
    small, large = (estimate(unet.changed(image=side), precision="bf16").phases for side in (16, 32))
    assert small["step_start"] < large["step_start"] and 3 * small["after_forward"] < 4 * large["after_forward"]
    assert (estimate(unet, precision="bf16", sequence=77).phases == estimate(unet, precision="bf16").phases
            != estimate(unet, precision="bf16", sequence=200).phases)


@pytest.mark.parametrize(("name", "change", "words"), [
    ("unet", {"_class_name": "UNet3DConditionModel"}, "UNet2DConditionModel"),
    ("unet", {"class_embed_type": "timestep"}, "class_embed_type"),
    ("unet", {"addition_embed_type": "image"}, "text_time"),
    ("unet", {"attention_head_dim": [2, 3, 2]}, "heads of 8"),
    ("unet", {"block_out_channels": 320}, "give a list"),
    ("unet", {"layers_per_block": [2, 2]}, "list of 3"),
    ("unet", {"up_block_types": ["UpBlock2D", "UpBlock2D", "UpBlock2D"]}, "alike"),
    ("unet", {"down_block_types": ["AttnDownBlock2D"] * 3}, "CrossAttnDownBlock2D"),
    ("unet", {"norm_num_groups": 5}, "must divide"),
    ("sdxl", {"projection_class_embeddings_input_dim": 12}, "more than 6"),
    ("dit", {"sample_size": 13}, "must divide"),
    ("dit", {"norm_type": "ada_norm_single"}, "ada_norm_zero"),
    ("dit", {"attention_head_dim": 12}, "heads of 8"),
])
def test_other_networks_are_refused(name: str, change: dict[str, Any], words: str) -> None:
    with pytest.raises(PeakmemError, match=words):
        from_config(CONFIGS[name] | change)


@pytest.mark.parametrize("settings", [{"attention": "eager"}, {"shard": "fsdp2", "gpus": 2}, {"loss": "sum"}])
def test_what_is_not_known_of_them_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(PeakmemError):
        estimate(from_config(dict(CONFIGS["dit"])), **settings)


def test_fields_that_no_class_has_are_named() -> None:
    model = from_config(CONFIGS["unet"] | {"tea_kettle": 3})
    assert any("tea_kettle" in note for note in model.notes)
    assert any("diffusers' default holds: transformer_layers_per_block 1" in note for note in model.notes)
