"""What the caching allocator makes of a trace: blocks allocated and segments reserved."""

from __future__ import annotations

from peakmem.allocator import Allocator, Settings

from .tracer import Block, Tracer

SETTINGS = {"default": Settings(), "expandable_segments": Settings(expandable_segments=True)}


def allocator_peaks(tracer: Tracer, start: int) -> dict[str, dict[str, int]]:
    """Return max_allocated after the first `start` events and max_reserved of the whole run, in bytes.

    One stream, no kernel scratch; by default settings and with expandable segments.
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
