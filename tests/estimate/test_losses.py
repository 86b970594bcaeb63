"""Losses that run the head themselves, against the same algorithms in plain torch, allocation by allocation."""

from __future__ import annotations

from typing import Any

import pytest

from peakmem.errors import Impossible
from peakmem.estimate.interpret import interpret
from peakmem.estimate.replay import compiled, replay
from peakmem.estimate.settings import structure_of
from peakmem.readers.hf_config import from_config
from peakmem.setup import Setup

CONFIG: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 96, "intermediate_size": 200, "num_hidden_layers": 2,
    "num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": 523, "max_position_embeddings": 2048,
    "hidden_act": "silu", "pad_token_id": 0,
}
# one piece, two, many; a shorter last one; one sequence
SIZES = [(1, 8, 1), (3, 32, 2), (2, 40, 4), (1, 40, 4)]


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize(("batch", "sequence", "chunks"), SIZES)
@pytest.mark.parametrize("precision", ["bf16", "fp32", "amp-bf16"])
@pytest.mark.parametrize("loss", ["fused", "chunked"])
def test_every_allocation(loss: str, precision: str, batch: int, sequence: int, chunks: int, tied: bool) -> None:
    compare(loss, precision, batch, sequence, chunks, tied, {})


@pytest.mark.parametrize("loss", ["fused", "chunked"])
def test_with_micro_batches_and_checkpoints(loss: str) -> None:
    compare(loss, "bf16", 2, 40, 4, True, {"accumulation": 2, "checkpoint": "full"})


def compare(loss: str, precision: str, batch: int, sequence: int, chunks: int, tied: bool,
            more: dict[str, Any]) -> None:
    pytest.importorskip("transformers")
    from tests.estimate.plain_losses import WithLoss
    from tests.estimate.traced_module import estimated, traced

    config = CONFIG | {"tie_word_embeddings": tied}
    setup = Setup.of(loss=loss, loss_chunks=chunks, precision=precision, batch=batch, sequence=sequence,
                     optimizer_implementation="foreach", **more)
    ours = estimated(config, setup)
    for phase, want in traced(config, setup, lambda model: WithLoss(model, chunks if loss == "chunked" else 0)).items():
        assert ours.get(phase, []) == want, phase


@pytest.mark.parametrize("loss", ["fused", "chunked", "sum"])
@pytest.mark.parametrize("precision", ["bf16", "amp-bf16"])
def test_folded_layers_are_the_unfolded_ones(loss: str, precision: str) -> None:
    model = from_config(CONFIG)
    setup = Setup.of(loss=loss, precision=precision, batch=2, sequence=64)
    levels = []
    for unfold in (False, True):
        structure, numbers = structure_of(model, setup, unfold=unfold)
        levels.append(replay(compiled(interpret(structure)), numbers))
    assert levels[0] == levels[1]


def test_chunks_divide_the_sequence() -> None:
    with pytest.raises(Impossible, match="does not divide"):
        structure_of(from_config(CONFIG), Setup.of(loss="chunked", loss_chunks=8, sequence=33))
