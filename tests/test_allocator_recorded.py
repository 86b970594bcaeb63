"""Our answers against those of PyTorch's own allocator (torch 2.13.0), recorded: see allocator_oracle/README.md."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from allocator_oracle.programs import Program, answers

RECORDED = json.loads((Path(__file__).parent / "data" / "allocator_torch.json").read_text())


@pytest.mark.parametrize("row", RECORDED, ids=range(len(RECORDED)))
def test_counters_layout_and_messages_are_pytorchs(row: dict[str, object]) -> None:
    commands = tuple(str(row["commands"]).split(";"))
    program = Program(str(row["options"]), int(str(row["capacity"])), int(str(row["outside"])), commands)
    assert answers(program) == row["answers"]


def test_the_recorded_programs_reach_every_corner() -> None:
    said = [answer for row in RECORDED for answer in row["answers"]]
    retried = [row for row in RECORDED if not row["answers"][-2].endswith(" 0")]
    assert len(RECORDED) == 60
    assert sum(answer.startswith("error") for answer in said) >= 50
    assert any("allowed;" in answer for answer in said)
    assert any("w," in answer for answer in said if answer.startswith("layout")), "blocks that wait for a stream"
    assert len(retried) >= 10
    for option in (
        "expandable",
        "max_split",
        "max_non_split",
        "large_segment",
        "roundup",
        "garbage",
        "fraction",
    ):
        assert sum(option in row["options"] for row in RECORDED) >= 5, option
