"""Optimizers: traced steps event by event, states of real 8- and 4-bit optimizers, folded against unfolded."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from peakmem.estimate import estimate
from peakmem.estimate.formulas import size_text
from peakmem.estimate.interpret import interpret
from peakmem.estimate.optimizers import RULES
from peakmem.estimate.replay import compiled, replay, size
from peakmem.estimate.settings import structure_of
from peakmem.readers.hf_config import from_config
from peakmem.setup import Setup
from peakmem.tables.optimizers import OPTIMIZERS
from tests.reference_steps import DATA, differences, events_by_phase

RECORDS = {record["id"]: record for record in json.loads((DATA / "traced_optimizers.json").read_text())}


def llama(layers: int = 2, hidden: int = 64, feed: int = 96, vocabulary: int = 523) -> dict[str, Any]:
    return {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": hidden,
        "intermediate_size": feed, "num_hidden_layers": layers, "num_attention_heads": 4, "num_key_value_heads": 2,
        "vocab_size": vocabulary, "max_position_embeddings": 64, "tie_word_embeddings": False,
    }


def held(config: dict[str, Any], kind: str, **given: Any) -> int:
    """Bytes of all lines of a kind, made at all."""
    ledger = estimate(from_config(config), sequence=16, **given)
    return sum(line.bytes * line.count for line in ledger.lines if line.kind == kind)


@pytest.mark.parametrize("name", RECORDS)
def test_traced_steps(name: str) -> None:
    """Levels of every phase; allocations and releases of the phases that the record has, one by one."""
    assert differences(RECORDS[name]) == {}
    for phase, (ours, theirs) in events_by_phase(RECORDS[name]).items():
        assert ours == theirs, phase


def test_every_optimizer_has_code() -> None:
    assert set(RULES) == set(OPTIMIZERS)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_state_lines_are_named_after_their_parameter(name: str) -> None:
    ledger = estimate(from_config(llama()), optimizer=name, precision="bf16", sequence=16)
    states = [line for line in ledger.lines if line.kind == "optimizer_state"]
    assert bool(states) == (name not in ("none", "sgd"))
    for line in states:
        parameter, _, state = line.name.rpartition("/")
        assert parameter == "optimizer" or parameter.endswith((".weight", ".bias")), line.name
        assert state and line.why != f"{line.name}: what the optimizer remembers from step to step"


@pytest.mark.parametrize(("shape", "precision", "eight", "four"), [
    ((2, 64, 96, 523), "bf16", 328704, 379904), ((2, 64, 96, 523), "fp32", 328704, 680960),
    ((3, 128, 344, 1537), "bf16", 1930240, 1036288), ((3, 128, 344, 1537), "fp32", 1930240, 1036288),
    ((4, 96, 200, 100), "bf16", 769024, 451584), ((1, 64, 64, 64), "bf16", 102400, 62464),
    ((1, 64, 64, 64), "fp32", 102400, 78848),
])
def test_8_and_4_bit_states_are_the_real_ones(shape: tuple[int, ...], precision: str, eight: int, four: int) -> None:
    """Storages counted on transformers' Llama, each rounded up to 512.

    bitsandbytes 0.50.2: AdamW8bit.init_state; torchao 0.18.0: AdamW4bit._new_buffer, codes, scale and qmap.
    """
    assert held(llama(*shape), "optimizer_state", optimizer="adamw-8bit", precision=precision) == eight
    assert held(llama(*shape), "optimizer_state", optimizer="adamw-4bit", precision=precision) == four


def test_the_threshold_of_8_bit_states_is_decided_by_numbers() -> None:
    """One tape below and above 4096 elements; one element decides."""
    key = ("from", 4096, 1, (("V",),), (1, ("V",)), (4, ("V",)))
    assert size(key, {"V": 4095}) == 4 * 4095
    assert size(key, {"V": 4096}) == 4096
    assert size_text(key) == "1·V if V ≥ 4096, else 4·V"
    assert size_text(key, {"V": 4095}) == "4·4095"
    small, large = (structure_of(from_config(llama(vocabulary=v)), Setup.of(optimizer="adamw-8bit"))[0]
                    for v in (60, 64))
    assert small == large


def test_sizes_that_numbers_decide_take_arrays() -> None:
    numpy = pytest.importorskip("numpy")
    values = {"h": numpy.array([3, 64, 4096, 5000]), "f": numpy.array([2000, 64, 1, 100])}
    keys = (
        ("from", 4096, 1, (("f", "h"),), (1, ("f", "h")), (4, ("f", "h"))),
        ("from", 4096, 128, (("f", "h"),), ("blocks", 1, 2, ("f", "h")), (2, ("f", "h"))),
        ("from", 4096, 1, (("h",), ("f",)), (1024, ()), (0, ())),
        ("blocks", 4, 256, ("f", "h")),
        ("smaller side squared", 2, ("f",), ("h",)),
        ("times largest", ("+", (4, ("h",))), 65536, (("h",), ("f",))),
    )
    for key in keys:
        together = size(key, values)
        alone = [size(key, {name: int(array[i]) for name, array in values.items()}) for i in range(4)]
        assert [int(x) for x in numpy.broadcast_to(together, 4)] == alone


def test_all_tensors_small_means_no_code_table() -> None:
    tiny = llama(1, 8, 8, 16)
    assert held(tiny, "optimizer_state", optimizer="adamw-8bit", precision="bf16") == held(
        tiny, "optimizer_state", optimizer="adamw", precision="fp32", optimizer_implementation="foreach")


def test_state_dtype() -> None:
    model = llama(2, 128, 256, 512)
    full = held(model, "optimizer_state", precision="fp32")
    half = held(model, "optimizer_state", precision="fp32", state_dtype="bf16")
    assert half < full < 2 * half  # norms of 512 bytes stay 512 bytes
    ledger = estimate(from_config(model), optimizer="adamw-8bit", state_dtype="bf16")
    assert "--state-dtype bf16 changes nothing: adamw-8bit keeps codes and scales" in ledger.notes
    assert ledger.totals == estimate(from_config(model), optimizer="adamw-8bit").totals


def test_notes_name_a_form_that_an_optimizer_lacks() -> None:
    ledger = estimate(from_config(llama()), precision="bf16", optimizer="adafactor", optimizer_implementation="fused")
    assert any("adafactor has no fused form: it runs as loop" in note for note in ledger.notes)


def test_clipping_and_the_step_are_one_row_of_the_chart() -> None:
    ledger = estimate(from_config(llama()), clip=True, precision="bf16", sequence=16)
    assert [row.moment for row in ledger.chart].count("step") == 1
    assert ledger.phases["clip_peak"] > ledger.phases["after_backward"]
    plain = estimate(from_config(llama()), precision="bf16", sequence=16)
    assert "clip_peak" not in plain.phases
    assert ledger.phases["step_end"] == plain.phases["step_end"]


ANY_STEP = {
    "optimizer": st.sampled_from(sorted(OPTIMIZERS)),
    "optimizer_implementation": st.sampled_from(["auto", "foreach", "fused", "loop"]),
    "precision": st.sampled_from(["mixed", "megatron", "bf16", "fp32", "amp-bf16"]),
    "step": st.sampled_from(["steady", "first"]),
    "set_to_none": st.booleans(),
    "clip": st.booleans(),
    "accumulation": st.sampled_from([1, 2, 3]),
    "lora_rank": st.sampled_from([0, 0, 4]),
}


@settings(max_examples=60, deadline=None)
@given(layers=st.integers(1, 5), family=st.sampled_from(["llama", "gemma3_text", "gpt2"]),
       given=st.fixed_dictionaries(ANY_STEP))
def test_folded_layers_say_what_unfolded_ones_do(layers: int, family: str, given: dict[str, Any]) -> None:
    config = llama(layers) | {"model_type": family, "head_dim": 16, "sliding_window": 8}
    if family == "gpt2":
        config = {"model_type": "gpt2", "n_embd": 48, "n_layer": layers, "n_head": 3, "vocab_size": 131}
    config.pop("architectures", None)
    model, setup = from_config(config), Setup.of(sequence=12, **given)
    levels = []
    for unfold in (False, True):
        structure, numbers = structure_of(model, setup, unfold)
        levels.append(replay(compiled(interpret(structure)), numbers))
    assert levels[0] == levels[1]
    if given["step"] == "steady":
        assert levels[0]["clear"].end == levels[0]["start"].end
