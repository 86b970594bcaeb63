"""What must hold for every setting, looked for with hypothesis."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, assume, given, settings, strategies as st

from peakmem.estimate import estimate
from peakmem.estimate.interpret import interpret
from peakmem.estimate.kinds import kinds_of
from peakmem.estimate.replay import size, value
from peakmem.estimate.settings import structure_of
from peakmem.ledger_json import as_json, from_json
from peakmem.model import Model
from peakmem.setup import Setup
from tests.estimate.test_books import FAMILIES, model_of

DECODERS = [family for family in FAMILIES if family not in ("vit", "bert")]
QUICK = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
ways = st.fixed_dictionaries({
    "batch": st.integers(2, 5), "sequence": st.integers(2, 60),
    "precision": st.sampled_from(("mixed", "bf16", "fp32", "amp-bf16", "megatron")),
    "checkpoint": st.sampled_from(("none", "full")),
    "attention": st.sampled_from(("auto", "eager")),
    "accumulation": st.integers(1, 3),
})


def saved(model: Model, setup: dict[str, Any]) -> tuple[int, int]:
    """Unrounded bytes that outlive the forward: those that grow with the batch, and the constant rest."""
    structure, numbers = structure_of(model, Setup.of(**setup))
    tape = interpret(structure)
    kinds = kinds_of(tape)
    growing = constant = 0
    for record, kind in zip(tape.records, kinds, strict=True):
        if kind != "activations" or not record.saved:
            continue
        count = value(record.fold, numbers) if record.fold else 1
        letters = str(record.key)
        if "'b'" in letters or "b*" in letters:
            growing += count * int(size(record.key, numbers))
        else:
            constant += count * int(size(record.key, numbers))
    return growing, constant


@QUICK
@given(st.sampled_from(DECODERS), ways)
def test_saved_activations_double_with_the_batch(family: str, way: dict[str, Any]) -> None:
    model = model_of(family)
    once, fixed = saved(model, way)
    twice, fixed_again = saved(model, way | {"batch": 2 * way["batch"]})
    assert twice == 2 * once
    assert fixed == fixed_again


@QUICK
@given(st.sampled_from(sorted(FAMILIES)), ways)
def test_the_peak_is_the_highest_moment_and_the_kinds_add_up(family: str, way: dict[str, Any]) -> None:
    assume(family != "vit" or way["attention"] == "auto")
    ledger = estimate(model_of(family), **way)
    shown = max(row.peak for row in ledger.chart)
    assert ledger.peak.bytes == ledger.totals.tensors >= shown
    assert way["accumulation"] > 1 or ledger.peak.bytes == shown
    assert sum(ledger.peak.by_kind.values()) == ledger.peak.bytes
    for row in ledger.chart:
        assert sum(row.by_kind.values()) == row.end <= row.peak == sum(row.peak_by_kind.values())
        assert min(row.by_kind.values()) >= 0
    at_peak = sum(line.bytes_at_peak for line in ledger.lines if not line.scratch)
    assert at_peak == ledger.peak.bytes
    for kind, top in ledger.kinds.items():
        assert top.largest >= max(row.peak_by_kind[kind] for row in ledger.chart)


@QUICK
@given(st.sampled_from(DECODERS), ways)
def test_a_ledger_survives_json(family: str, way: dict[str, Any]) -> None:
    ledger = estimate(model_of(family), **way)
    written = json.dumps(as_json(ledger))
    assert as_json(from_json(json.loads(written))) == json.loads(written)


@QUICK
@given(st.sampled_from(DECODERS), ways)
def test_tied_weights_never_cost_more(family: str, way: dict[str, Any]) -> None:
    model = model_of(family)
    weights = [estimate(model.changed(tied=tied), **way).kinds["weights"] for tied in (True, False)]
    assert weights[0].largest <= weights[1].largest


@QUICK
@given(st.sampled_from(DECODERS), ways)
def test_levers_never_raise_what_they_lower(family: str, way: dict[str, Any]) -> None:
    model = model_of(family).changed(hidden=96, head_size=24, feed_forward=256, vocabulary=997)
    plain = way | {"checkpoint": "none"}
    before = kept(model, plain)
    assert kept(model, plain | {"checkpoint": "full"})["activations"] <= before["activations"]
    smaller = kept(model, plain | {"batch": plain["batch"] - 1})
    assert smaller["activations"] <= before["activations"]
    adapters = kept(model, plain | {"lora_rank": 4})
    assert adapters["gradients"] <= before["gradients"]
    assert adapters["optimizer_state"] <= before["optimizer_state"]
    assert kept(model, plain | {"optimizer": "adamw-8bit"})["optimizer_state"] <= before["optimizer_state"]
    assert kept(model, plain | {"state_dtype": "bf16"})["optimizer_state"] <= before["optimizer_state"]


def kept(model: Model, way: dict[str, Any]) -> dict[str, int]:
    """What is alive between forward and backward, of each kind, and the gradients after backward."""
    chart = {row.moment: row for row in estimate(model, **way).chart}
    return {**chart["F3"].by_kind, "gradients": chart["B1"].by_kind["gradients"]}
