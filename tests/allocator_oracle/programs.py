"""Random programs for the allocator, and our simulation's answers to them in the oracle's words."""

from __future__ import annotations

import random
from dataclasses import dataclass

from peakmem.allocator import Allocator, OutOfMemory, Settings
from peakmem.allocator.blocks import Block

MIB = 1 << 20


@dataclass(frozen=True)
class Program:
    """Commands: a ID BYTES STREAM, f ID, u ID STREAM (record_stream), w (streams never finish by themselves),
    e (empty the cache), r (reset peaks), c (print counters), l (print the layout)."""

    options: str
    capacity: int
    outside: int
    commands: tuple[str, ...]

    @property
    def settings(self) -> Settings:
        return Settings.parse(self.options, Settings(capacity=self.capacity, outside=self.outside))


def answers(program: Program) -> list[str]:
    allocator = Allocator(program.settings)
    live: dict[int, Block] = {}
    said: list[str] = []
    for command in program.commands:
        word, *numbers = command.split()
        given = [int(number) for number in numbers]
        if word == "a":
            try:
                live[given[0]] = allocator.allocate(given[1], given[2])
            except OutOfMemory as error:
                said.append(f"error {error}")
        elif word == "f" and given[0] in live:
            allocator.free(live.pop(given[0]))
        elif word == "u" and given[0] in live:
            allocator.record_stream(live[given[0]], given[1])
        elif word == "e":
            allocator.empty_cache()
        elif word == "r":
            allocator.reset_peaks()
        elif word == "c":
            said.append(counters(allocator))
        elif word == "l":
            said.append(layout(allocator))
    return said


def counters(allocator: Allocator) -> str:
    names = ("requested", "allocated", "active", "reserved", "inactive_split", "segments")
    pairs = (f"{getattr(allocator, name)} {getattr(allocator, name + '_peak')}" for name in names)
    return f"counters {' '.join(pairs)} {allocator.retries}"


def layout(allocator: Allocator) -> str:
    letters = {"active_allocated": "a", "active_awaiting_free": "w", "inactive": ""}
    text = "layout"
    for segment in allocator.layout():
        text += f" {'e' if segment.expandable else 'm'}{'s' if segment.small else 'l'}{segment.stream}"
        text += "".join(f",{piece.size}{letters[piece.state]}" for piece in segment.pieces)
    return text


def random_program(seed: int, length: int | None = None) -> Program:
    rng = random.Random(seed)
    options = _random_options(rng)
    capacity = rng.choice([100 * MIB, 300 * MIB, 800 * MIB, 2000 * MIB + 12345, 1 << 40])
    outside = rng.choice([0, 0, 17 * MIB + 333])
    return Program(options, capacity, outside, _random_commands(rng, length or rng.choice([50, 300, 2000])))


def _random_options(rng: random.Random) -> str:
    options = []
    if rng.random() < 0.4:
        options.append("expandable_segments:True")
    split = rng.choice([20, 21, 25, 32, 64, 128]) if rng.random() < 0.35 else None
    if split:
        options.append(f"max_split_size_mb:{split}")
    if rng.random() < 0.2:
        options.append(f"max_non_split_rounding_mb:{rng.choice([20, 24, 40])}")
    elif rng.random() < 0.3 and (split or 64) >= 64:
        options.append(f"large_segment_size_mb:{rng.choice([11, 12, 30, 64])}")
    if rng.random() < 0.3:
        choices = ("1", "2", "4", "8", "16", "[64:8,256:4,>:1]", "[>:2]", "[1:4,8:2]", "[4:0,16:8,>:4]")
        options.append(f"roundup_power2_divisions:{rng.choice(choices)}")
    if rng.random() < 0.5:
        options.append(f"per_process_memory_fraction:{rng.choice([0.3, 0.5, 0.77, 0.9, 1.0])}")
    if rng.random() < 0.4:
        options.append(f"garbage_collection_threshold:{rng.choice([0.3, 0.6, 0.8, 0.95])}")
    return ",".join(options)


def _random_size(rng: random.Random) -> int:
    low, high = rng.choice(
        [
            (1, 4000),
            (1, MIB),
            (MIB - 2000, MIB + 2000),
            (MIB, 10 * MIB),
            (10 * MIB - 2000, 10 * MIB + 1000),
            (10 * MIB, 60 * MIB),
        ]
    )
    return rng.randint(low, high)


def _random_commands(rng: random.Random, length: int) -> tuple[str, ...]:
    sizes = [_random_size(rng) for _ in range(rng.randint(3, 30))]
    records = rng.random() < 0.3
    commands = ["w"] if records else []
    live: list[int] = []
    leaning = 0.5
    for number in range(length):
        if number % max(1, length // 8) == 0:
            leaning = rng.uniform(0.38, 0.62)
        if rng.random() < leaning or not live:
            size = rng.choice(sizes) if rng.random() < 0.8 else rng.randint(1, rng.choice([2000, 3 * MIB, 30 * MIB]))
            commands.append(f"a {number} {size} {rng.choice([0, 0, 0, 1, 2])}")
            live.append(number)
            if records and rng.random() < 0.2:
                commands.append(f"u {number} 78")
        else:
            commands.append(f"f {live.pop(rng.randrange(len(live)))}")
        for command, chance in (("e", 0.002), ("r", 0.002), ("c", 0.05), ("l", 0.01)):
            if rng.random() < chance:
                commands.append(command)
    rng.shuffle(live)
    return (*commands, "c", "l", *(f"f {number}" for number in live), "c", "l", "e", "c", "l")
