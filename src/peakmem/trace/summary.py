"""The numbers of the last step of a trace: levels by phase, and what is alive at two moments."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from itertools import accumulate
from types import MappingProxyType
from typing import Any

from .blocks import Block
from .classify import classify
from .reserved import allocator_peaks
from .tracer import Tracer

ACTIVATIONS = ("saved", "held", "loss", "weight_cast")


def rounded(size: int) -> int:
    """Return the size the caching allocator counts: the next multiple of 512 bytes."""
    return -(-size // 512) * 512


def summary(tracer: Tracer, events: bool = False) -> dict[str, Any]:
    """Return the fields of a reference record that follow from the events of the last step, in bytes.

    With `events`, every allocation (+) and release (-) too, unrounded, by phase.
    """
    phases = tracer.phases
    first = first_of_step(tracer)
    start = phases[first][2]
    classify(tracer)
    levels = levels_of(tracer, rounded)
    top = max(range(start, len(levels)), key=lambda i: (levels[i], -i))
    forward_end = _end_of_last(tracer, "forward")
    result: dict[str, Any] = {
        "bytes": phase_bytes(tracer, levels, rounded),
        "bytes_unrounded": phase_bytes(tracer, levels_of(tracer, int), int),
        "peak_at": _place(tracer, top),
        "by_kind_after_forward": _by_kind(_alive(tracer, forward_end), {"loss": "held"}),
        "activations_after_forward_by_dtype": _by_dtype(_alive(tracer, forward_end)),
        "activations_after_forward_by_module": _by_module(_alive(tracer, forward_end)),
        "by_kind_at_peak": _by_kind(_alive(tracer, top), {"held": "temporary", "loss": "temporary"}),
        "largest_at_peak": _largest(_alive(tracer, top)),
        "allocator": allocator_peaks(tracer, start),
        "operations_in_step": tracer.operations[-1] - tracer.operations[first],
        "allocations_in_step": sum(change > 0 for _, change in tracer.events[start:]),
    }
    if events:
        result["events"] = [
            {"phase": name, "micro_batch": micro, "bytes": [c for _, c in tracer.events[begin:end]]}
            for (name, micro, begin), (_, _, end) in zip(phases[first:], phases[first + 1 :])
        ]
    return result


def first_of_step(tracer: Tracer) -> int:
    return max(i for i, (name, micro, _) in enumerate(tracer.phases) if name == "forward" and micro == 0)


def _end_of_last(tracer: Tracer, name: str) -> int:
    last = max(i for i, phase in enumerate(tracer.phases) if phase[0] == name)
    return tracer.phases[last + 1][2]


def levels_of(tracer: Tracer, size: Callable[[int], int]) -> list[int]:
    return list(accumulate((size(c) if c > 0 else -size(-c) for _, c in tracer.events), initial=0))


def phase_bytes(tracer: Tracer, levels: list[int], size: Callable[[int], int]) -> dict[str, Any]:
    phases, first = tracer.phases, first_of_step(tracer)
    alive = _alive(tracer, _end_of_last(tracer, "backward"))
    kinds = {
        "params": "parameter",
        "buffers": "buffer",
        "inputs": "input",
        "grads": "gradient",
        "optimizer_state": "optimizer_state",
    }
    out: dict[str, Any] = {
        name: sum(size(block.bytes) for block in alive if block.kind == kind) for name, kind in kinds.items()
    }
    out["step_start"] = levels[phases[first][2]]
    micro: list[dict[str, int]] = []
    others: dict[str, int] = {}
    for (name, number, start), (_, _, end) in zip(phases[first:], phases[first + 1 :]):
        peak = max(levels[start : end + 1])
        if name == "forward":
            micro.append({})
        if name in ("forward", "backward"):
            micro[number][f"after_{name}"] = levels[end]
            micro[number][f"{name}_peak"] = peak
        elif name != "zero":
            others[f"{name}_peak"] = peak
    for name in ("forward", "backward"):
        out[f"after_{name}"] = micro[-1][f"after_{name}"]
        out[f"{name}_peak"] = max(m[f"{name}_peak"] for m in micro)
    out.update(others, step_end=levels[-1], peak=max(levels[phases[first][2] :]))
    if len(micro) > 1:
        out["micro_batches"] = micro
    return out


def _alive(tracer: Tracer, end: int) -> list[Block]:
    """Return the blocks alive after the first `end` events, oldest first."""
    live: dict[Block, None] = {}
    for block, change in tracer.events[:end]:
        if change > 0:
            live[block] = None
        else:
            live.pop(block, None)
    return list(live)


def _place(tracer: Tracer, top: int) -> dict[str, Any]:
    block = tracer.events[top - 1][0]
    name, micro = next((n, m) for n, m, start in reversed(tracer.phases) if start < top)
    place: dict[str, Any] = {"phase": name}
    if max(m for _, m, _ in tracer.phases):
        place["micro_batch"] = micro
    return {**place, "op": block.op, "module": block.module}


def _sorted(sizes: Counter[str]) -> dict[str, int]:
    return dict(sizes.most_common())


def _by_kind(blocks: Iterable[Block], renamed: Mapping[str, str] = MappingProxyType({})) -> dict[str, int]:
    sizes: Counter[str] = Counter()
    for block in blocks:
        sizes[renamed.get(block.kind, block.kind)] += rounded(block.bytes)
    return _sorted(sizes)


def _by_dtype(blocks: Iterable[Block]) -> dict[str, int]:
    sizes: Counter[str] = Counter()
    for block in blocks:
        if block.kind in ACTIVATIONS:
            sizes[str(block.dtype).removeprefix("torch.")] += rounded(block.bytes)
    return _sorted(sizes)


def _by_module(blocks: Iterable[Block]) -> dict[str, dict[str, int]]:
    sizes: dict[str, Counter[str]] = {}
    for block in blocks:
        if block.kind in ACTIVATIONS:
            name = re.sub(r"\.\d+(?=\.|$)", ".*", block.module)
            sizes.setdefault(name, Counter())["held" if block.kind == "loss" else block.kind] += rounded(block.bytes)
    order = sorted(sizes, key=lambda name: -sum(sizes[name].values()))
    return {name: _sorted(sizes[name]) for name in order}


def _largest(blocks: list[Block], count: int = 10) -> list[dict[str, Any]]:
    return [
        {
            "shape": list(block.shape),
            "dtype": str(block.dtype).removeprefix("torch."),
            "bytes": block.bytes,
            "module": block.module,
            "kind": "held" if block.kind == "loss" else block.kind,
            "op": block.op,
        }
        for block in sorted(blocks, key=lambda block: -block.bytes)[:count]
    ]
