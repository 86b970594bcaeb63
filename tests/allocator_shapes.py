"""Words for what the allocator's tests feed in and look at. Sizes in MiB."""

from __future__ import annotations

from peakmem.allocator import Allocator, Settings, replay

MIB = 1 << 20

Events = list[tuple[object, int]]


def made(count: int, mebibytes: float, name: str) -> Events:
    return [((name, i), int(mebibytes * MIB)) for i in range(count)]


def freed(count: int, name: str) -> Events:
    return [((name, i), 0) for i in range(count)]


def reserved(events: Events, **settings: object) -> int:
    """The peak, in MiB."""
    return replay(events, Settings(**settings)).reserved.peak // MIB  # type: ignore[arg-type]


def shape(allocator: Allocator) -> list[list[str]]:
    names = {"active_allocated": "live", "active_awaiting_free": "waiting", "inactive": "free"}
    return [[f"{p.size // MIB} {names[p.state]}" for p in segment.pieces] for segment in allocator.layout()]
