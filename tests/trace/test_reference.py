"""Our tracer reproduces the reference records: bytes, kinds, kernels and, of tiny models, every event."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from peakmem.trace.process import Worker
from peakmem.trace.record import trace

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from traced_reference import differences, setting

DATA = Path(__file__).parents[1] / "data"
RECORDS: dict[str, Any] = {r["id"]: r for r in json.loads((DATA / "traced_steps.json").read_text())}
TINY = [name for name, record in RECORDS.items() if "events" in record]
LARGE = [
    "llama-3.1-8b/bf16/ckpt/b1s8192",
    "falcon-7b/bf16/b1s1024",
    "bert-base/fp32-autocast-bf16/b16s512",
    "vit-base/fp32-autocast-bf16/b64",
    "t5-small/bf16/b4s512",
    "gpt2/fp32-autocast-bf16/acc2/b4s1024",
]


@pytest.mark.parametrize("name", TINY + LARGE)
def test_a_reference_record_is_reproduced(worker: Worker, name: str) -> None:
    record = RECORDS[name]
    found = worker.call(trace, setting(record, DATA / "configs"), events="events" in record)
    assert list(differences(record, found)) == []
