"""Models that classify pictures against the real ones: parameters by name and shape, traced steps, other sizes."""

from __future__ import annotations

import json
from typing import Any

import pytest

from peakmem import estimate
from peakmem.errors import Impossible, PeakmemError
from peakmem.estimate.interpret import interpret
from peakmem.estimate.settings import structure_of
from peakmem.readers.hf_config import CLASSES, from_config
from peakmem.setup import Setup
from peakmem.tables.resize import resize
from tests.architectures.test_towers import RESNET, real_model, sides
from tests.reference_steps import DATA, differences, events_by_phase

TINY = {record["id"]: record for record in json.loads((DATA / "traced_classifiers.json").read_text())}

VIT: dict[str, Any] = {"hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 3, "image_size": 20,
                       "patch_size": 4, "num_channels": 2, "num_labels": 7}
DINO = VIT | {"mlp_ratio": 3}
CONVNEXT: dict[str, Any] = {"hidden_sizes": [12, 20, 28], "depths": [2, 3, 1], "num_stages": 3, "num_labels": 7,
                            "image_size": 48}
VARIANTS: dict[str, dict[str, Any]] = {
    "deit": VIT | {"model_type": "deit", "intermediate_size": 56},
    "deit without biases": VIT | {"model_type": "deit", "intermediate_size": 56, "qkv_bias": False},
    "dinov2, stochastic depth": DINO | {"model_type": "dinov2", "drop_path_rate": 0.2},
    "dinov2 with registers": DINO | {"model_type": "dinov2_with_registers", "num_register_tokens": 3},
    "dinov2 with registers, gated": DINO | {"model_type": "dinov2_with_registers", "use_swiglu_ffn": True},
    "convnext": CONVNEXT | {"model_type": "convnext", "drop_path_rate": 0.1},
    "convnext without factors": CONVNEXT | {"model_type": "convnext", "layer_scale_init_value": 0.0},
    "convnext v2": CONVNEXT | {"model_type": "convnextv2", "patch_size": 8, "image_size": 64},
}
FAMILIES = {config["model_type"] for config in VARIANTS.values()}


@pytest.mark.parametrize("variant", VARIANTS)
def test_parameters_are_those_of_transformers(variant: str) -> None:
    """Name for name, shape for shape, in the order of definition."""
    structure, numbers = structure_of(from_config(VARIANTS[variant]), Setup.of(), unfold=True)
    ours: list[tuple[str, tuple[int, ...]]] = []
    layers: dict[str, list[str]] = {}  # of each stack, in order
    for key, p in interpret(structure).parameters.items():
        found = layers.setdefault(p.full_name.partition(".*")[0], [])
        found += [] if key.partition(":")[0] in found else [key.partition(":")[0]]
        ours.append((p.full_name.replace("*", str(found.index(key.partition(":")[0]))), sides(p.dims, numbers)))
    assert ours == [(name, tuple(p.shape)) for name, p in real_model(VARIANTS[variant]).named_parameters()]


@pytest.mark.parametrize("name", TINY)
def test_tiny_steps(name: str) -> None:
    """Phases of the folded model, and every allocation of the unfolded one."""
    assert differences(TINY[name]) == {}
    for phase, (ours, want) in events_by_phase(TINY[name]).items():
        assert ours == want, phase


def test_every_family_is_traced() -> None:
    assert {record["config"]["model_type"] for record in TINY.values()} == FAMILIES
    assert all(CLASSES[family].endswith("ForImageClassification") for family in FAMILIES)


@pytest.mark.parametrize("variant", ["deit", "dinov2 with registers"])
def test_larger_pictures_have_more_tokens(variant: str) -> None:
    """A position more for each patch; tokens in front stay as many."""
    model = from_config(VARIANTS[variant])
    larger = resize(model, image=28)
    assert larger.positions - model.positions == 7 * 7 - 5 * 5
    numbers = [dict(structure_of(m, Setup.of())[1]) for m in (model, larger)]
    assert numbers[1]["s"] - numbers[0]["s"] == 7 * 7 - 5 * 5
    assert from_config(VARIANTS[variant] | {"image_size": 28}).positions == larger.positions


def test_the_gated_feed_forward_is_two_thirds() -> None:
    """DINOv2 giant: 1536 · 4 · 2/3 = 4096."""
    giant = {"model_type": "dinov2", "hidden_size": 1536, "num_attention_heads": 24, "use_swiglu_ffn": True}
    assert from_config(giant).feed_forward == 4096


def test_stochastic_depth_is_a_dropout_of_whole_blocks() -> None:
    """--dropout stands for it, too; without it nothing of it is left."""
    model = from_config(VARIANTS["convnext"])
    drawn = [sum("random number" in line.name for line in estimate(model, precision="bf16", dropout=p).lines)
             for p in (-1, 0.3, 0)]
    assert drawn[0] == drawn[1] > 0 == drawn[2]


@pytest.mark.parametrize(("config", "words"), [
    (VARIANTS["convnext"] | {"image_size": 40}, "no multiple of 16"),
    (VARIANTS["convnext"] | {"depths": [2]}, "as many"),
    (VARIANTS["convnext"] | {"num_stages": 2}, "num_stages 2"),
    (VARIANTS["convnext"] | {"hidden_sizes": 3}, "give a list"),
    (VARIANTS["dinov2 with registers"] | {"mlp_ratio": 0}, "mlp_ratio"),
    (VARIANTS["deit"] | {"patch_size": 24}, "larger"),
    (VARIANTS["deit"] | {"num_attention_heads": 5}, "not divisible"),
])
def test_what_no_class_takes_is_refused(config: dict[str, Any], words: str) -> None:
    with pytest.raises(PeakmemError, match=words):
        from_config(config)


def test_a_convnext_takes_pictures_that_its_stages_divide() -> None:
    model = from_config(VARIANTS["convnext"])
    assert resize(model, image=64).image == 64
    for size, value in (("image", 40), ("hidden", 64), ("layers", 9), ("patch", 8)):
        with pytest.raises(Impossible):
            resize(model, **{size: value})
    with pytest.raises(Impossible, match="does not support"):
        structure_of(model, Setup.of(checkpoint="full"))
    with pytest.raises(Impossible, match="on one GPU"):
        structure_of(model, Setup.of(shard="fsdp2", gpus=8))


@pytest.mark.parametrize("config", [VARIANTS["convnext"], RESNET])
def test_a_trace_counts_the_layers_of_stages(config: dict[str, Any]) -> None:
    """They are what --frozen-layers holds, as in the estimate; stages are not."""
    model = real_model(config)
    from peakmem.trace.hf import all_layers_of

    assert len(all_layers_of(model)) == from_config(config).layers == sum(config["depths"])
