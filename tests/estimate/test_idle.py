"""What is said to change nothing changes nothing: tried, setting by setting; and a picture is what the lines say."""

from __future__ import annotations

from typing import Any

import pytest

from peakmem import estimate
from peakmem.errors import Impossible, PeakmemError
from peakmem.estimate import named
from peakmem.estimate.idle import idle_settings
from peakmem.setup import FIELDS, Setup

OTHER: dict[str, Any] = {
    "freeze": "embeddings", "kv_bits": 8, "utilization": 0.8, "checkpoint_save": "mm", "dropout": 0.1,
    "lora_targets": "q_proj,query,c_attn", "generate": 32, "optimizer": "lion"}
RUNS: tuple[dict[str, Any], ...] = (
    {}, {"run": "inference"}, {"run": "inference", "lora_rank": 4}, {"shard": "fsdp2", "gpus": 4, "accumulation": 2},
    {"shard": "zero3", "gpus": 4})


def other(name: str) -> Any:
    """A value that is not the default."""
    row = FIELDS[name]
    if name in OTHER:
        return OTHER[name]
    if row["type"] is bool:
        return not row["default"]
    if row["type"] in (int, float):
        return min(row["default"] + 1, row["most"])
    return next(choice for choice in reversed(row["choices"]) if choice != row["default"])


@pytest.mark.parametrize("model", ["vit-base", "gpt2", "bert-base", "t5-small"])
def test_what_is_idle_changes_nothing(model: str) -> None:
    tried = 0
    for run in RUNS:
        try:
            base = estimate(model, **run)
        except PeakmemError:
            continue
        for name in idle_settings(named(model), Setup.of(**run)):
            try:
                changed = estimate(model, **{**run, name: other(name)})
            except PeakmemError:
                continue
            assert (changed.chart, changed.lines) == (base.chart, base.lines), (run, name)
            assert any(note.startswith("no effect") and "--" + name.replace("_", "-") in note
                       for note in changed.notes), (run, name)
            tried += 1
    assert tried > 20


def test_a_picture_model_reads_no_tokens() -> None:
    assert idle_settings(named("vit-base"), Setup.of())["sequence"] == "in a model that reads 224 × 224 pixels"
    assert "sequence" not in idle_settings(named("gpt2"), Setup.of())
    assert "lora_rank" not in idle_settings(named("gpt2"), Setup.of(run="inference"))


@pytest.mark.parametrize("outputs", ["logits", "logits+cache"])
@pytest.mark.parametrize("model", ["t5-small", "whisper-tiny", "clip-vit-base-patch32"])
def test_outputs_that_are_not_known_are_refused(model: str, outputs: str) -> None:
    with pytest.raises(Impossible, match="returns beside its loss is not known"):
        estimate(model, outputs=outputs)


def test_scalars_are_not_sharded() -> None:
    """CLIP's logit_scale has no rows: PyTorch refuses it, too."""
    with pytest.raises(Impossible, match="scalar parameters"):
        estimate("clip-vit-base-patch32", shard="fsdp2", gpus=8)


@pytest.mark.parametrize("settings", [{}, {"accumulation": 3, "sequence": 700}, {"checkpoint": "full", "batch": 3},
                                      {"run": "inference"}, {"shard": "fsdp2", "gpus": 8}])
@pytest.mark.parametrize("model", ["gpt2", "qwen3-0.6b"])
def test_the_outline_is_that_of_the_account(model: str, settings: dict[str, Any]) -> None:
    ledger = estimate(model, **settings)
    seen, peak = ledger.outline, ledger.peak
    assert (seen.moment, seen.by_kind, seen.chart) == (peak.moment, peak.by_kind, ledger.chart)
    assert peak.bytes == ledger.totals.tensors
