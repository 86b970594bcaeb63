"""Models of several towers against the real models: parameters by name and shape, traced steps."""

from __future__ import annotations

import json
from math import prod
from typing import Any

import pytest

from peakmem.errors import Impossible, Unreadable
from peakmem.estimate.interpret import interpret
from peakmem.estimate.layout import Dims
from peakmem.estimate.replay import value
from peakmem.estimate.settings import structure_of
from peakmem.readers.hf_config import CLASSES, from_config
from peakmem.setup import Setup
from tests.reference_steps import DATA, differences, events_by_phase

FAMILIES = ("clip",)
TINY = {record["id"]: record for record in json.loads((DATA / "traced_towers.json").read_text())}

CLIP = {
    "model_type": "clip", "projection_dim": 24,
    "text_config": {"hidden_size": 48, "intermediate_size": 56, "num_hidden_layers": 3, "num_attention_heads": 6,
                    "vocab_size": 97, "max_position_embeddings": 20},
    "vision_config": {"hidden_size": 40, "intermediate_size": 44, "num_hidden_layers": 2, "num_attention_heads": 4,
                      "image_size": 32, "patch_size": 8},
}
VARIANTS: dict[str, dict[str, Any]] = {"clip": CLIP}


def real_model(config: dict[str, Any]) -> Any:
    """transformers' own model, without memory."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    with torch.device("meta"):
        return getattr(transformers, CLASSES[config["model_type"]])(transformers.AutoConfig.for_model(**config))


def sides(shape: Dims, numbers: dict[str, Any]) -> tuple[int, ...]:
    return tuple(prod(value(letter.rstrip("'"), numbers) for letter in group) for group in shape)


@pytest.mark.parametrize("variant", VARIANTS)
def test_parameters_are_those_of_transformers(variant: str) -> None:
    """Name for name, shape for shape, in the order of definition."""
    structure, numbers = structure_of(from_config(VARIANTS[variant]), Setup.of(sequence=16), unfold=True)
    ours: list[tuple[str, tuple[int, ...]]] = []
    layers: dict[str, list[str]] = {}  # of each stack, in order
    for key, p in interpret(structure).parameters.items():
        found = layers.setdefault(p.full_name.partition(".*")[0], [])
        found += [] if key.partition(":")[0] in found else [key.partition(":")[0]]
        number = found.index(key.partition(":")[0])
        ours.append((p.full_name.replace("*", str(number)), sides(p.dims, numbers)))
    assert ours == [(name, tuple(p.shape)) for name, p in real_model(VARIANTS[variant]).named_parameters()]


@pytest.mark.parametrize("name", TINY)
def test_tiny_steps(name: str) -> None:
    """Phases of the folded model, and every allocation of the unfolded one."""
    assert differences(TINY[name]) == {}
    for phase, (ours, want) in events_by_phase(TINY[name]).items():
        assert ours == want, phase


def test_every_family_is_traced() -> None:
    assert {record["config"]["model_type"] for record in TINY.values()} == set(FAMILIES)


@pytest.mark.parametrize(("change", "error", "words"), [
    ({"text_config": 3}, Unreadable, "give an object"),
    ({"vision_config": {"image_size": 8, "patch_size": 9}}, Impossible, "larger"),
    ({"vision_config": {"hidden_size": 50, "num_attention_heads": 4}}, Impossible, "vision_config"),
])
def test_what_no_class_takes_is_refused(change: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        from_config(CLIP | change)
