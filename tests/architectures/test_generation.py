"""Forward passes without gradients, and generation with an encoder, against what transformers' own classes allocate."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from peakmem.errors import Impossible
from peakmem.estimate import estimate
from peakmem.estimate.interpret import interpret
from peakmem.estimate.replay import compiled, replay
from peakmem.estimate.server import bytes_per_token, bytes_read
from peakmem.estimate.settings import structure_of
from peakmem.readers.hf_config import from_config
from peakmem.setup import Setup
from tests.generations import compared, model_of, setup_of
from tests.reference_steps import DATA

RECORDS = {record["id"]: record for record in json.loads((DATA / "traced_inference.json").read_text())}
T5 = RECORDS["t5/bf16/sdpa"]["config"]
WHISPER_LARGE = {"model_type": "whisper", "d_model": 1280, "encoder_layers": 32, "decoder_layers": 32,
                 "encoder_ffn_dim": 5120, "decoder_ffn_dim": 5120, "encoder_attention_heads": 20,
                 "decoder_attention_heads": 20, "vocab_size": 51866, "num_mel_bins": 128}


@pytest.mark.parametrize("name", RECORDS)
def test_every_allocation_is_the_real_model_s(name: str) -> None:
    for phase, (ours, want) in compared(RECORDS[name]).items():
        assert ours == want, phase


@pytest.mark.parametrize("name", RECORDS)
def test_layers_fold(name: str) -> None:
    levels = []
    for unfold in (False, True):
        structure, numbers = structure_of(model_of(RECORDS[name]), setup_of(RECORDS[name]), unfold=unfold)
        levels.append(replay(compiled(interpret(structure)), numbers))
    assert levels[0] == levels[1]


def whisper(**given: Any) -> Any:
    usual = {"run": "inference", "precision": "fp16", "target": 4, "generate": 445}
    return estimate(from_config(WHISPER_LARGE), **usual | given)


def test_whisper_holds_the_encoder_once_and_each_beam_s_own_tokens() -> None:
    """A published log: 83.9 MB for a decoder of 448 tokens in blocks of 512, 245.8 MB of the encoder for all."""
    served = {"kv_cache": "paged", "block_size": 512}
    own, read = 32 * 2 * 512 * 1280 * 2, 32 * 2 * 1500 * 1280 * 2
    assert (f"{own / 1e6:.1f}", f"{read / 1e6:.1f}") == ("83.9", "245.8")
    assert whisper(**served).kinds["kv_cache"].largest == own + read
    assert whisper(**served, beams=8).kinds["kv_cache"].largest == 8 * own + read
    assert whisper(kv_cache="static", beams=2).kinds["kv_cache"].largest == 2 * (own * 448 // 512 + read)
    assert any("transformers copies" in note and f"{8 * read:,}" in note for note in whisper(**served, beams=8).notes)


def test_a_token_costs_the_decoder_s_layers_and_the_source_does_not_grow() -> None:
    structure, numbers = structure_of(from_config(WHISPER_LARGE), Setup.of(run="inference", precision="fp16"))
    assert bytes_per_token(structure, numbers) == 32 * 2 * 1280 * 2
    assert bytes_read(structure, numbers) == 32 * 2 * 1500 * 1280 * 2
    phases = [whisper(generate=n).phases for n in (2, 445)]
    assert phases[0]["prefill_peak"] == phases[1]["prefill_peak"] < phases[1]["decode_peak"]


def test_beams_read_copies_of_the_encoder_s_output_and_it_runs_once_for_them() -> None:
    model = from_config(T5)
    one, beams, batch = (estimate(model, run="inference", precision="bf16", sequence=64, generate=3, **given)
                         for given in ({}, {"beams": 4}, {"batch": 4}))
    assert beams.kinds["kv_cache"].largest == batch.kinds["kv_cache"].largest > one.kinds["kv_cache"].largest
    assert one.phases["prefill_peak"] <= beams.phases["prefill_peak"] < batch.phases["prefill_peak"]


@pytest.mark.parametrize("given, words", [
    (dict(prefill_chunk=8), "encoded at once"), (dict(tensor_parallel=2), "divides decoders"),
])
def test_what_an_encoder_does_not_do_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(Impossible, match=words):
        estimate(from_config(T5), run="inference", sequence=16, **given)


def test_the_decoder_s_positions_bound_what_is_generated() -> None:
    with pytest.raises(Impossible, match="448 positions"):
        whisper(generate=446)


@pytest.mark.parametrize("name", ["bert-base", "vit-base", "resnet-50", "clip-vit-base-patch32"])
def test_an_encoder_has_a_prefill_and_nothing_else(name: str) -> None:
    ledger = estimate(name, run="inference", precision="bf16", batch=4)
    assert "kv_cache" not in ledger.kinds
    assert [row.moment for row in ledger.chart] == ["load", "P1", "P2", "P3"]
    assert ledger.phases["load"] < ledger.phases["prefill_peak"] == ledger.totals.tensors


def test_a_moment_of_decoding_is_in_the_decoder_s_layers() -> None:
    ledger = estimate("t5-small", run="inference", precision="bf16", sequence=64, generate=20)
    assert ledger.kinds["kv_cache"].at == "last decode/decoder.block.5/layer.0.SelfAttention"


def test_a_server_counts_the_source_of_every_sequence() -> None:
    note = next(note for note in whisper(kv_cache="paged", gpu="A100-80GB").notes if "needed for this load" in note)
    room, sequences = (int(re.findall(pattern, note)[0].replace(",", ""))
                       for pattern in (r"of which ([\d,]+)", r"or ([\d,]+) sequences"))
    assert sequences == room // (32 * 2 * 1280 * 2 * (448 + 1500))  # 448 tokens are 28 blocks


def test_a_preset_of_each_family_generates() -> None:
    for name in ("t5-small", "whisper-tiny"):
        ledger = estimate(name, run="inference", precision="bf16", generate=20)
        assert max(row.peak for row in ledger.chart) == ledger.totals.tensors
        assert sum(ledger.by_kind().values()) == ledger.peak.bytes
