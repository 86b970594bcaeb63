"""Numbers that papers print, from the tape."""

from __future__ import annotations

import pytest

from peakmem.errors import Impossible
from peakmem.estimate.interpret import interpret
from peakmem.estimate.replay import compiled, replay
from peakmem.estimate.settings import structure_of
from peakmem.readers.hf_config import from_config
from peakmem.setup import Setup
from peakmem.tables.models import custom

# (sequence, batch, heads, head size): the paper's 22B model's shape made small, and odd sizes
SIZES = [(2048, 4, 16, 64), (96, 3, 5, 12), (33, 1, 3, 7)]


def kept_by_one_layer(s: int, b: int, a: int, d: int, **settings: object) -> int:
    """What the forward pass leaves behind for each layer more, unrounded."""
    ends: list[int] = []
    for layers in (1, 2, 3):
        model = custom(layers=layers, hidden=a * d, heads=a, vocabulary=101, positions=s)
        setup = Setup.of(implementation="paper", precision="bf16", sequence=s, batch=b, **settings)
        structure, numbers = structure_of(model, setup)
        forward = replay(compiled(interpret(structure)), numbers, rounding=1)["forward"]
        ends.append(forward.end - forward.start)
    assert ends[1] - ends[0] == ends[2] - ends[1]
    return ends[2] - ends[1]


@pytest.mark.parametrize(("s", "b", "a", "d"), SIZES)
def test_korthikanti_activations_of_a_layer(s: int, b: int, a: int, d: int) -> None:
    """Equation 1 of arXiv:2205.05198: s·b·h·(34 + 5·a·s/h)."""
    h = a * d
    assert kept_by_one_layer(s, b, a, d) == 34 * s * b * h + 5 * a * s * s * b


@pytest.mark.parametrize(("s", "b", "a", "d"), SIZES)
def test_korthikanti_selective_recomputation(s: int, b: int, a: int, d: int) -> None:
    """Section 5, table 2: 34·s·b·h where the attention core is computed again."""
    assert kept_by_one_layer(s, b, a, d, checkpoint="selective") == 34 * s * b * a * d


@pytest.mark.parametrize(("s", "b", "a", "d"), SIZES)
def test_korthikanti_full_recomputation(s: int, b: int, a: int, d: int) -> None:
    """Table 2: 2·s·b·h where only a layer's input is kept."""
    assert kept_by_one_layer(s, b, a, d, checkpoint="full") == 2 * s * b * a * d


@pytest.mark.parametrize("implementation", ["transformers", "paper"])
def test_gpt2_has_124_million_parameters(implementation: str) -> None:
    """124,439,808: the model that the GPT-2 paper's table 2 lists as 117M."""
    setup = Setup.of(implementation=implementation, precision="bf16", sequence=1024)
    structure, numbers = structure_of(from_config({"model_type": "gpt2"}), setup, unfold=True)
    tape = interpret(structure)
    sizes = replay(compiled(tape), numbers, rounding=1)["start"]
    inputs = 2 * 8 * 1024
    assert (sizes.end - inputs) // 3 == 2 * 124_439_808  # weights and two states, 2 bytes each


@pytest.mark.parametrize("settings", [{"run": "inference"}, {"loss": "fused"}, {"loss": "chunked"}])
def test_what_the_papers_block_does_not_have_is_refused(settings: dict[str, str]) -> None:
    with pytest.raises(Impossible, match="paper"):
        structure_of(from_config({"model_type": "gpt2"}), Setup.of(implementation="paper", sequence=64, **settings))
