"""What the caching allocator makes of a trace: blocks allocated and segments reserved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from peakmem.allocator import Allocator, Settings, replay

from .blocks import Block
from .tracer import Tracer

SETTINGS = {"default": Settings(), "expandable_segments": Settings(expandable_segments=True)}


def allocator_peaks(tracer: Tracer, start: int) -> dict[str, dict[str, int]]:
    """Return max_allocated after the first `start` events and max_reserved of the whole run, in bytes.

    All on one stream, no kernel scratch; by default settings and with expandable segments.
    """
    return {name: _peaks(tracer, start, settings) for name, settings in SETTINGS.items()}


def _peaks(tracer: Tracer, start: int, settings: Settings) -> dict[str, int]:
    allocator = Allocator(settings)
    held: dict[Block, object] = {}
    reserved = 0
    for i, (block, change) in enumerate(tracer.events):
        if i == start:
            reserved = allocator.reserved_peak
            allocator.reset_peaks()
        if change > 0:
            held[block] = allocator.allocate(change)
        else:
            allocator.free(held.pop(block))  # type: ignore[arg-type]
    return {"max_allocated": allocator.allocated_peak, "max_reserved": max(reserved, allocator.reserved_peak)}


def totals(tracer: Tracer, workspace: int) -> tuple[int, int]:
    """Return max_memory_allocated and max_memory_reserved of the whole run, kernels' scratch included.

    `workspace`: bytes of one cuBLAS workspace; one comes with the first forward, one with the first backward. Each
    stream has memory of its own, kernels work on the first one; default settings.
    """
    requests = list(_requests(tracer, workspace))
    streams = [name.stream if isinstance(name, Block) else 0 for name, _ in requests]
    found = replay(requests, streams=streams)
    return found.allocated.peak, found.reserved.peak


def _requests(tracer: Tracer, workspace: int) -> Iterator[tuple[Any, int]]:
    firsts = {}
    for name, _, start in reversed(tracer.phases):
        if name in ("forward", "backward"):
            firsts[name] = start
    taken: dict[int, list[tuple[Any, int]]] = {}
    given: dict[int, list[tuple[Any, int]]] = {}
    for number, each in enumerate(tracer.scratch):
        for name, size in each.pieces:
            taken.setdefault(each.begin, []).append(((number, name), size))
            given.setdefault(each.end, []).append(((number, name), 0))
    for i in range(len(tracer.events) + 1):
        yield from given.get(i, ())
        if workspace:
            yield from ((f"workspace of {name}", workspace) for name, start in firsts.items() if start == i)
        yield from taken.get(i, ())
        if i < len(tracer.events):
            block, change = tracer.events[i]
            yield block, max(change, 0)
