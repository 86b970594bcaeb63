"""Numbers in: the tape's events as sizes, added up.

Inside a repeated stretch every moment is `first + i·delta`, so its peak lies in the first or in the last
repetition, whatever their number: exact, and nothing is unrolled.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import accumulate
from typing import Any, NamedTuple

from peakmem.estimate.tape import Begin, End, Key, Phase, Tape

ROUNDING = 512  # the caching allocator's smallest block (c10/cuda/CUDACachingAllocator.cpp, kMinBlockSize)


class Stretch(NamedTuple):
    """Events between two marks; times: how often they happen, a letter or empty.

    parts: signed positions in the program's list of sizes, each row with how often it happens within the stretch.
    """

    times: str
    parts: tuple[tuple[str, tuple[int, ...]], ...]


class Program(NamedTuple):
    """A tape made ready for numbers: the distinct sizes, and the events of each phase."""

    keys: tuple[Key, ...]
    phases: tuple[tuple[str, tuple[Stretch, ...]], ...]


class Level(NamedTuple):
    """Live bytes at the start of a phase, at its highest, at its end."""

    start: Any
    peak: Any
    end: Any


def compiled(tape: Tape) -> Program:
    """The tape's events, grouped by phase and repeated stretch, with places dropped."""
    index: dict[Key, int] = {}
    place = [-1 if record.scratch else index.setdefault(record.key, len(index)) for record in tape.records]
    total = len(index)
    phases: list[tuple[str, list[Stretch]]] = []
    parts: list[tuple[str, tuple[int, ...]]] = []
    steps: list[int] = []
    marks: list[str] = []

    def cut() -> None:
        nonlocal steps
        if steps:
            parts.append((marks[1] if len(marks) > 1 else "", tuple(steps)))
        steps = []

    def close() -> None:
        nonlocal parts
        cut()
        if parts:
            phases[-1][1].append(Stretch(marks[0] if marks else "", tuple(parts)))
        parts = []

    for event in tape.events:
        if type(event) is int:
            if place[event if event >= 0 else ~event] < 0:
                continue  # kernel scratch stands outside the total of tensors
            steps.append(place[event] if event >= 0 else total + place[~event])
        elif type(event) is Phase:
            if phases:
                close()
            phases.append((event.name, []))
        elif type(event) is Begin:
            (cut if marks else close)()
            marks.append(event.times)
        elif type(event) is End:
            (cut if len(marks) > 1 else close)()
            marks.pop()
    close()
    return Program(tuple(index), tuple((name, tuple(parts)) for name, parts in phases))


def replay(program: Program, numbers: Mapping[str, Any], rounding: int = ROUNDING) -> dict[str, Level]:
    """Live bytes of every phase: start, peak within the phase, end."""
    sizes = [size(key, numbers) for key in program.keys]
    if rounding > 1:
        sizes = [-(-x // rounding) * rounding for x in sizes]
    signed = sizes + [-x for x in sizes]
    take = signed.__getitem__
    live = 0
    levels = {}
    for name, parts in program.phases:
        start = peak = live
        for count, rows in parts:
            highest = delta = 0
            for inside, steps in rows:
                sums = list(accumulate(map(take, steps)))
                turns = value(inside, numbers) if inside else 1
                if turns > 0:
                    top, change = max(sums), sums[-1]
                    highest = max(highest, delta + top, delta + top + (turns - 1) * change)
                    delta += turns * change
            if not count:
                peak = max(peak, live + highest)
                live += delta
                continue
            times = value(count, numbers)
            if times > 0:
                peak = max(peak, live + highest, live + highest + (times - 1) * delta)
                live += times * delta
        levels[name] = Level(start, peak, live)
    return levels


def size(key: Key, numbers: Mapping[str, Any]) -> Any:
    """Bytes of one key before rounding: a product, or one of the sizes that are none."""
    if type(key[0]) is str:
        return special_size(key, numbers)
    return product(key[0], key[1], numbers)


def product(width: Any, letters: tuple[str, ...], numbers: Mapping[str, Any]) -> Any:
    for letter in letters:
        width = width * (numbers[letter] if letter in numbers else value(letter, numbers))
    return width


def special_size(key: Key, numbers: Mapping[str, Any]) -> Any:
    """Sums, and sizes where numbers choose; with arrays, element by element.

    ("smaller", key, key)                       the smaller of two
    ("blocks", width, block, letters)           width for each block of elements, the last one perhaps not full
    ("smaller side squared", width, left, right)  a square as long as the smaller of two products
    ("times largest", key, block, choices)      a size for each block of the largest of some products
    ("from", least, divisor, choices, large, small)  `large` if one of the products in choices is at least `least` and
                                                a multiple of `divisor`, else `small`
    """
    if key[0] == "+":
        return sum(size(part, numbers) for part in key[1:])
    if key[0] == "smaller":
        left, right = size(key[1], numbers), size(key[2], numbers)
        return left * (left <= right) + right * (left > right)
    if key[0] == "blocks":
        return key[1] * -(-product(1, key[3], numbers) // key[2])
    if key[0] == "smaller side squared":
        left, right = product(1, key[2], numbers), product(1, key[3], numbers)
        side = left * (left <= right) + right * (left > right)
        return key[1] * side * side
    if key[0] == "times largest":
        most = 0
        for letters in key[3]:
            count = product(1, letters, numbers)
            most = most * (most >= count) + count * (most < count)
        return size(key[1], numbers) * -(-most // key[2])
    _, least, divisor, choices, large, small = key
    counts = [product(1, letters, numbers) for letters in choices]
    below = 1
    for count in counts:
        below = below * (1 - (count >= least) * (count % divisor == 0))
    return size(large, numbers) * (1 - below) + size(small, numbers) * below


@lru_cache(maxsize=4096)
def derived(letter: str) -> tuple[str, str, str]:
    """A derived letter taken apart: operator, left, right. The weakest operator outside parentheses splits first."""
    for operator in "+-^/*":
        depth = 0
        for at in range(len(letter) - 1, 0, -1):
            depth += (letter[at] == ")") - (letter[at] == "(")
            if letter[at] == operator and not depth:
                return operator, letter[:at], letter[at + 1:]
    if letter[:1] == "(":
        return derived(letter[1:-1])
    raise KeyError(letter)


def value(letter: str, numbers: Mapping[str, Any]) -> Any:
    """The number of a letter, plain or derived: `n-1`, `d/2` and `a*d/w` (rounded up), `s^32` (next multiple)."""
    if letter in numbers:
        return numbers[letter]
    if letter.isdigit():
        return int(letter)
    if letter.endswith("'"):
        return value(letter[:-1], numbers)
    operator, left, right = derived(letter)
    x, y = value(left, numbers), value(right, numbers)
    if operator == "+":
        return x + y
    if operator == "-":
        return x - y
    if operator == "*":
        return x * y
    return -(-x // y) * y if operator == "^" else -(-x // y)
