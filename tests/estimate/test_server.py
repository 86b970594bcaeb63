"""What a server has room for: blocks of tokens beside the states of the sequences that run; notes that say no more."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from peakmem.estimate import estimate
from peakmem.estimate.replay import replay
from peakmem.estimate.server import Server, bytes_in_states, bytes_per_token, server_of
from peakmem.estimate.settings import structure_of
from peakmem.model import Model
from peakmem.setup import Setup
from peakmem.tables.models import find_model
from peakmem.views.words import about

CONFIGS = Path(__file__).parents[1] / "data" / "configs"


def named(name: str) -> Model:
    return Model.read(CONFIGS / name) if name.endswith(".json") else find_model(name)


def served(name: str, **given: Any) -> tuple[int, int, Server]:
    """Bytes of a token, of a sequence's states, and the server."""
    from peakmem.estimate import program_of

    usual: dict[str, Any] = {"run": "inference", "precision": "bf16", "sequence": 256, "generate": 16,
                             "kv_cache": "paged", "gpu": "H200"}
    setup = Setup.of(**usual | given)
    structure, numbers = structure_of(named(name), setup)
    server = server_of(structure, numbers, setup, replay(program_of(structure), numbers))
    assert server
    return bytes_per_token(structure, numbers), bytes_in_states(structure, numbers) // numbers["b"], server


# Mamba 2: 64 heads of 64 with 128 numbers in fp32, 4 taps of 64·64 + 2·8·128 channels in bf16, 23 layers; 6 with
# 2 heads of 128. Jamba: 8192 channels with 16 numbers, 28 layers. Qwen3.5: 48 heads of 128 × 128, 48 layers.
STATES = [("nemotron-3-nano-30b-a3b.json", 23 * (64 * 64 * 128 * 4 + 4 * 6144 * 2), 6 * 2 * 2 * 128 * 2),
          ("jamba-1.5-mini.json", 28 * 8192 * (16 * 4 + 4 * 2), 4 * 2 * 8 * 128 * 2),
          ("qwen3.5-27b.json", 48 * (48 * 128 * 128 * 4 + 4 * 10240 * 2), 16 * 2 * 4 * 256 * 2)]


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(("name", "state", "token"), STATES)
def test_a_sequence_needs_its_states_beside_its_blocks(name: str, state: int, token: int, batch: int) -> None:
    per_token, held, server = served(name, batch=batch)
    assert (per_token, held, server.held) == (token, state, state)
    assert server.sequences == server.cache // (17 * 16 * token + state) > 1
    assert server.tokens * token + server.sequences * state <= server.cache
    assert (server.tokens + 16) * token + server.sequences * state > server.cache


def test_longer_sequences_leave_more_for_blocks() -> None:
    short, long = (served("jamba-1.5-mini.json", sequence=n)[2] for n in (256, 4096))
    assert long.sequences < short.sequences and long.tokens > short.tokens


def test_states_of_the_load_are_not_work() -> None:
    """A larger batch has more states; what is left for the server falls by its own work alone."""
    _, state, one = served("qwen3.5-27b.json", sequence=2)
    _, _, many = served("qwen3.5-27b.json", sequence=2, batch=16)
    assert one.cache - many.cache < 15 * state / 2


def test_mamba_has_sequences_alone() -> None:
    per_token, state, server = served("mamba-768x32-default.json", generate=4)
    assert (per_token, server.blocks, server.tokens) == (0, 0, 0)
    assert server.sequences == server.cache // state
    note = next(note for note in notes("mamba-768x32-default.json", gpu="H200") if "needed for this load" in note)
    assert "sequences of any length" in note and "blocks" not in note


def test_what_is_assumed_to_run_is_said() -> None:
    note = next(note for note in notes("jamba-1.5-mini.json", gpu="H200") if "needed for this load" in note)
    running, sequences = (re.findall(rf"([\d,]+) {what}", note)[0] for what in ("running sequences", "sequences of"))
    assert running == sequences
    assert any("states: 16,515,072 bytes" in note for note in notes("jamba-1.5-mini.json"))


def test_no_server_where_the_layers_are_not_known() -> None:
    found = notes("deepseek-v4-flash.json", gpu="B200")
    assert any("what a server has room for is not said" in note for note in found)
    assert not any("needed for this load" in note for note in found)


def notes(name: str, **given: Any) -> tuple[str, ...]:
    return estimate(named(name), **{"run": "inference", "sequence": 64, "generate": 8, **given}).notes


IDLE = [("vit-base", {"beams": 3}, "beams"), ("vit-base", {"kv_bits": 4}, "bit,"),
        ("bert-base", {"kv_cache": "paged", "prefill_chunk": 16}, "chunks"),
        ("deepseek-v4-flash.json", {"kv_bits": 4}, "bit,"), ("mamba-130m", {"kv_bits": 8}, "bit,"),
        ("mamba-130m", {"kv_cache": "static"}, "cache static")]


@pytest.mark.parametrize(("name", "given", "word"), IDLE)
def test_what_is_idle_is_said_once(name: str, given: dict[str, Any], word: str) -> None:
    said = [note for note in notes(name, **given) if any("--" + key.replace("_", "-") in note for key in given)]
    assert len(said) == 1 and said[0].startswith("no effect")
    assert not any(word in note for note in notes(name, **given) if not note.startswith("no effect"))


@pytest.mark.parametrize("name", ["mamba-130m", "jamba-1.5-mini.json", "t5-small"])
def test_fewer_bits_are_idle_exactly_where_the_ledger_stays(name: str) -> None:
    ledgers = [estimate(named(name), run="inference", sequence=64, generate=8, kv_bits=bits) for bits in (16, 4)]
    idle = any(note.startswith("no effect") and "--kv-bits" in note for note in ledgers[1].notes)
    assert idle == (ledgers[0].lines == ledgers[1].lines)


def test_the_gpu_makes_blocks_and_utilization_matter() -> None:
    given = {"utilization": 0.5, "block_size": 32}
    assert not any(note.startswith("no effect") for note in notes("qwen3-0.6b", gpu="H200", **given))
    assert any("--block-size" in note and note.startswith("no effect") for note in notes("qwen3-0.6b", **given))
    assert any(note == "no effect without --gpu: --utilization"
               for note in notes("qwen3-0.6b", kv_cache="paged", **given))


def test_one_of_a_kind_is_no_plural() -> None:
    found = "\n".join(notes("llama-3.1-8b", gpu="RTX 3090", block_size=1, sequence=20_000, kv_cache="paged"))
    assert "1 sequence of 20,007" in found and "blocks of 1 token:" in found
    assert not re.search(r"\b1 (sequence|token|byte|block|position)s\b", found)


@pytest.mark.parametrize("given", [
    {"sequence": 1}, {"sequence": 1, "run": "inference", "generate": 1, "gpu": "H200", "kv_cache": "paged"}], ids=str)
@pytest.mark.parametrize("name", ["gpt2", "t5-small", "mamba-130m"])
def test_nothing_that_is_said_of_a_run_is_one_of_many(name: str, given: dict[str, Any]) -> None:
    ledger = estimate(name, **given)
    said = "\n".join([about(ledger), *ledger.notes])
    assert not re.search(r"(?<![\d.,·])1 [a-z]*s\b", said), said
