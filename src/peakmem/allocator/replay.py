"""A whole list of allocations and frees, as a trace or an estimate gives it, run through the allocator."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from itertools import repeat

from peakmem.allocator.blocks import Block
from peakmem.allocator.layout import Segment
from peakmem.allocator.out_of_memory import OutOfMemory
from peakmem.allocator.settings import Settings
from peakmem.allocator.simulation import Allocator
from peakmem.errors import Impossible, printable
from peakmem.immutable import immutable

Event = tuple[Hashable, int]
"""(id, bytes): bytes over 0 allocate, 0 or less free what that id holds. An id may be used again later."""


@immutable
class Level:
    """A counter's highest value and its last one."""

    peak: int
    end: int


@immutable
class Totals:
    """What the events came to, in bytes but for segments, retries and events; see Allocator for the counters.

    end_layout and, if asked for, peak_layout (after the event that first took reserved memory to its peak)
    are for a picture. events counts those carried out; out_of_memory is set where the next one failed.
    """

    requested: Level
    allocated: Level
    active: Level
    reserved: Level
    inactive_split: Level
    segments: Level
    retries: int
    events: int
    end_layout: tuple[Segment, ...]
    peak_layout: tuple[Segment, ...] | None
    out_of_memory: OutOfMemory | None

    @property
    def fragmentation(self) -> float:
        """The share of the reserved peak, 0 to 1, that was never needed at once: 1 − allocated / reserved
        peak. An allocator that placed every block perfectly would have 0."""
        return 1 - self.allocated.peak / self.reserved.peak if self.reserved.peak else 0.0


def replay(
    events: Sequence[Event],
    settings: Settings | None = None,
    streams: Iterable[int] | None = None,
    peak_layout: bool = False,
) -> Totals:
    """Runs the events, in order, through a new allocator.

    streams: one number for each event (that of a free is not looked at); None: all on one stream.
    peak_layout: whether to run them again, up to the reserved peak, for its picture.
    Running out of memory ends the replay and is reported in the result. Raises Impossible for a free of what
    is not allocated, or an allocation under an id that still is.
    """
    numbers = None if streams is None else list(streams)
    if numbers is not None and len(numbers) != len(events):
        raise Impossible(f"streams has {len(numbers)} numbers for {len(events)} events: give one for each")
    allocator = Allocator(settings)
    done, peak_at, shortage = _run(allocator, events, numbers)
    picture = None
    if peak_layout:
        at_peak = Allocator(settings)
        _run(at_peak, events[:peak_at], numbers)
        picture = at_peak.layout()
    return Totals(
        requested=Level(allocator.requested_peak, allocator.requested),
        allocated=Level(allocator.allocated_peak, allocator.allocated),
        active=Level(allocator.active_peak, allocator.active),
        reserved=Level(allocator.reserved_peak, allocator.reserved),
        inactive_split=Level(allocator.inactive_split_peak, allocator.inactive_split),
        segments=Level(allocator.segments_peak, allocator.segments),
        retries=allocator.retries,
        events=done,
        end_layout=allocator.layout(),
        peak_layout=picture,
        out_of_memory=shortage,
    )


def _run(
    allocator: Allocator, events: Sequence[Event], streams: Sequence[int] | None
) -> tuple[int, int, OutOfMemory | None]:
    """Events done, events up to the reserved peak, and what stopped it, if anything did."""
    live: dict[Hashable, Block] = {}
    allocate, free = allocator.allocate, allocator.free
    done = peak_at = reserved_peak = 0
    try:
        for (name, size), stream in zip(events, repeat(0) if streams is None else streams):
            if size > 0:
                if name in live:
                    raise Impossible(f"event {done} allocates {_told(name)}, which is still allocated")
                live[name] = allocate(size, stream)
                if allocator.reserved_peak > reserved_peak:
                    reserved_peak, peak_at = allocator.reserved_peak, done + 1
            else:
                block = live.pop(name, None)
                if block is None:
                    raise Impossible(f"event {done} frees {_told(name)}, which is not allocated")
                free(block)
            done += 1
    except OutOfMemory as shortage:
        return done, peak_at, shortage
    return done, peak_at, None


def _told(name: Hashable) -> str:
    return printable(name)
