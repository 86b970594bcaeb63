"""More tokens than a model has positions: what is offered instead can be given, and works."""

from __future__ import annotations

import re
from typing import Any

import pytest

from peakmem import estimate
from peakmem.errors import Impossible

CASES: list[tuple[str, dict[str, Any]]] = [
    ("gpt2", {"run": "inference", "generate": 99_999}),
    ("gpt2", {"run": "inference", "generate": 1_000, "sequence": 1_000}),
    ("gpt2", {"run": "inference", "generate": 5_000, "sequence": 5_000}),
    ("gpt2", {"sequence": 1_025}),
    ("opt-125m", {"run": "inference", "generate": 2_049, "sequence": 1}),
    ("bart-large", {"run": "inference", "generate": 2_000}),
    ("bart-large", {"run": "inference", "generate": 600, "target": 600}),
    ("bart-large", {"run": "inference", "sequence": 2_000}),
    ("bart-large", {"sequence": 1_000, "target": 1_025}),
]


@pytest.mark.parametrize(("model", "given"), CASES, ids=str)
def test_what_is_offered_works(model: str, given: dict[str, Any]) -> None:
    with pytest.raises(Impossible) as error:
        estimate(model, **given)
    said = str(error.value).partition("; give ")[2]
    assert "-" not in re.sub(r"--[a-z]", "", said), said
    together = re.fullmatch(r"a --(\w+) and a --generate of at most ([\d,]+) together", said)
    if together:
        most = int(together[2].replace(",", ""))
        estimate(model, **given | {together[1]: most - 10, "generate": 10})
        with pytest.raises(Impossible):
            estimate(model, **given | {together[1]: most - 10, "generate": 11})
        return
    offered = re.findall(r"--(\w+) of at most ([\d,]+)", said)
    assert offered, said
    for name, most in offered:
        estimate(model, **given | {name: int(most.replace(",", ""))})
        with pytest.raises(Impossible):
            estimate(model, **given | {name: int(most.replace(",", "")) + 1})
