"""Traced steps of eight tiny models, whose blocks and reserved bytes were counted by another simulation.

The data tells the second step event by event but not which of several equal tensors is freed, nor the first step.
So: parameters in the order in which zero_grad frees their gradients, then buffers and inputs; the first step is
the second one with AdamW's two states made before the optimizer; of equal tensors the oldest, or else the
youngest, is freed. Both choices must give the counted bytes.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from pathlib import Path
from typing import Any

import pytest

from peakmem.allocator import Allocator, Settings
from peakmem.allocator.blocks import Block

RECORDS = json.loads((Path(__file__).parent / "data" / "allocator_tiny_steps.json").read_text())


@pytest.mark.parametrize("oldest_first", [True, False])
@pytest.mark.parametrize("name", ["default", "expandable_segments"])
@pytest.mark.parametrize("record", RECORDS, ids=[record["id"] for record in RECORDS])
def test_two_steps_of_a_tiny_model(record: dict[str, Any], name: str, oldest_first: bool) -> None:
    allocator = Allocator(Settings(expandable_segments=name == "expandable_segments"))
    phases = dict(record["phases"])
    gradients = [-size for size in phases["zero"]]
    for size in gradients:
        allocator.allocate(size)
    for kind in ("buffers", "inputs"):
        rounded, exact = record[kind]
        count = rounded // 512 if kind == "buffers" else 2
        for _ in range(count):
            allocator.allocate(exact // count)
    live: defaultdict[int, deque[Block]] = defaultdict(deque)
    for step in (1, 2):
        if step == 2:
            allocator.reset_peaks()
        for phase in ("forward", "backward", "optimizer", "zero"):
            if step == 1 and phase == "optimizer":
                for size in gradients:
                    allocator.allocate(size)
                    allocator.allocate(size)
            for size in phases[phase]:
                if size > 0:
                    live[size].append(allocator.allocate(size))
                else:
                    equal = live[-size]
                    allocator.free(equal.popleft() if oldest_first else equal.pop())
    counted = record["allocator"][name]
    assert allocator.allocated_peak == counted["max_allocated"]
    assert allocator.reserved_peak == counted["max_reserved"]
