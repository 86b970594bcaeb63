"""Decoders that generate, against what transformers' own classes allocate: the prompt, first and last single token."""

from __future__ import annotations

import json

import pytest

from peakmem.estimate.interpret import interpret
from peakmem.estimate.replay import compiled, replay
from peakmem.estimate.settings import structure_of
from tests.generations import compared, model_of, setup_of
from tests.reference_steps import DATA

RECORDS = {record["id"]: record for record in json.loads((DATA / "traced_decoding.json").read_text())}


@pytest.mark.parametrize("name", RECORDS)
def test_every_allocation_is_the_real_model_s(name: str) -> None:
    for phase, (ours, want) in compared(RECORDS[name]).items():
        assert ours == want, phase


@pytest.mark.parametrize("name", RECORDS)
def test_layers_and_loops_fold(name: str) -> None:
    levels = []
    for unfold in (False, True):
        structure, numbers = structure_of(model_of(RECORDS[name]), setup_of(RECORDS[name]), unfold=unfold)
        levels.append(replay(compiled(interpret(structure)), numbers))
    assert levels[0] == levels[1]
