"""How many events a second the allocator simulation replays.

    python benchmarks/allocator.py [--events 600000] [--at-least 300000]

The events are training steps of a made-up 32-layer transformer, one after the other: activations kept from
forward to backward, temporaries, gradients, an optimizer step. The yardstick, in the same run, is a loop that
only keeps which tensors live and their sum: what any replay in Python must do. Exit code 1 when a setting is
slower than --at-least.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterator
from time import perf_counter

from peakmem.allocator import Settings, replay

MIB = 1 << 20
Events = list[tuple[int, int]]


def steps(count: int, layers: int = 32) -> Events:
    """About `count` events: (id, bytes), bytes 0 to free."""
    names = iter(range(1 << 60))
    rng = random.Random(0)
    tokens = 4096
    widths = [(rng.choice([2, 4]) * tokens * width, keep) for width, keep in LAYER]
    events: Events = []
    while len(events) < count:
        kept: list[list[int]] = []
        for _ in range(layers):
            kept.append(list(_layer(events, names, widths)))
        gradients: list[int] = []
        for names_kept in reversed(kept):
            for name in reversed(names_kept):
                scratch = next(names)
                events += [(scratch, 3 * tokens * 1024), (name, 0), (scratch, 0)]
            gradients += _made(events, names, [2 * 1024 * 1024, 2 * 1024 * 3584, 4096])
        updates = _made(events, names, [4 * 1024 * 1024] * layers)
        events += [(name, 0) for name in updates + gradients]
    return events


LAYER = [(1024, True), (1, True), (1024, False), (1024, True), (256, True), (256, True), (1024, True), (1, True)]
LAYER += [(3584, True), (3584, True), (3584, False), (3584, True), (1024, False), (8, False), (1024, True)]


def _layer(events: Events, names: Iterator[int], widths: list[tuple[int, bool]]) -> Iterator[int]:
    dropped = []
    for size, keep in widths:
        name = next(names)
        events.append((name, size))
        if keep:
            yield name
        else:
            dropped.append(name)
    events += [(name, 0) for name in dropped]


def _made(events: Events, names: Iterator[int], sizes: list[int]) -> list[int]:
    made = [(next(names), size) for size in sizes]
    events += made
    return [name for name, _ in made]


def least_work(events: Events) -> int:
    live: dict[int, int] = {}
    now = peak = 0
    for name, size in events:
        if size > 0:
            live[name] = size
            now += size
            peak = max(peak, now)
        else:
            now -= live.pop(name)
    return peak


def rate(work: Callable[[Events], object], events: Events, rounds: int = 3) -> float:
    """Events a second, the best of some rounds."""
    best = float("inf")
    for _ in range(rounds):
        start = perf_counter()
        work(events)
        best = min(best, perf_counter() - start)
    return len(events) / best


SETTINGS = {
    "default": Settings(),
    "expandable_segments": Settings(expandable_segments=True),
    "max_split_size 128 MiB": Settings(max_split_size=128 * MIB),
    "roundup_power2_divisions 8": Settings(roundup_power2_divisions=8),
    "garbage collection": Settings(
        garbage_collection_threshold=0.8, memory_fraction=0.9, capacity=80 << 30, max_split_size=200 * MIB
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=600_000)
    parser.add_argument("--at-least", type=float, default=300_000, metavar="EVENTS_A_SECOND")
    asked = parser.parse_args()
    events = steps(asked.events)
    yardstick = rate(least_work, events)
    print(f"{len(events):,} events; yardstick {yardstick:,.0f} events/s")
    slowest = float("inf")
    for name, settings in SETTINGS.items():
        speed = rate(lambda them, settings=settings: replay(them, settings), events)  # type: ignore[misc]
        totals = replay(events, settings)
        slowest = min(slowest, speed)
        print(
            f"{name:28} {speed:>10,.0f} events/s, {yardstick / speed:4.1f} x the yardstick's time; allocated"
            f" {totals.allocated.peak / MIB:,.0f} MiB, reserved {totals.reserved.peak / MIB:,.0f} MiB"
        )
    print(f"slowest {slowest:,.0f} events/s, asked for {asked.at_least:,.0f}")
    return int(slowest < asked.at_least)


if __name__ == "__main__":
    sys.exit(main())
