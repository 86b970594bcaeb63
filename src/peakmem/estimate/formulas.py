"""Sizes and counts as text: in letters, and with numbers put in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peakmem.estimate.replay import product, value
from peakmem.estimate.tape import Key

Count = dict[str, int]
"""How many, as a sum: {"n": 9, "": 1} is 9·n + 1."""


def add(count: Count, letter: str, times: int) -> None:
    """Add times × a number of repetitions: `n-1` is one n and minus one."""
    left, minus, right = letter.rpartition("-")
    if minus and right.isdigit():
        count[left] = count.get(left, 0) + times
        count[""] = count.get("", 0) - times * int(right)
    else:
        count[letter] = count.get(letter, 0) + times


def number_of(count: Count, numbers: Mapping[str, Any]) -> int:
    return sum(times * (value(letter, numbers) if letter else 1) for letter, times in count.items())


def count_text(count: Count, numbers: Mapping[str, Any] | None = None) -> str:
    """`9·n + 1`, or with numbers `9·32 + 1`; empty for exactly one."""
    parts: list[str] = []
    for letter, times in sorted(count.items(), key=lambda item: (item[0] == "", item[0])):
        if not times:
            continue
        word = "" if not letter else letter.replace("*", "·") if numbers is None else str(value(letter, numbers))
        size = abs(times)
        term = str(size) if not word else word if size == 1 else f"{size}·{word}"
        sign = "+ " if times > 0 else "− "
        parts.append(f"{sign}{term}" if parts else term if times > 0 else f"−{term}")
    text = " ".join(parts)
    return "" if text == "1" else text


def size_text(key: Key, numbers: Mapping[str, Any] | None = None) -> str:
    """One size: `2·b·s·f`, or `2·1·8192·14336`."""
    if type(key[0]) is str:
        return special_text(key, numbers)
    return "·".join([str(key[0]), *factors(key[1], numbers)])


def factors(letters: tuple[str, ...], numbers: Mapping[str, Any] | None) -> list[str]:
    """The letters of a product, or their numbers, in the order people write them."""
    words = [shown(letter) if numbers is None else str(value(letter, numbers)) for letter in ordered(letters)]
    return [f"({word})" if any(sign in word for sign in "+-") and not word.lstrip("-").isdigit() else word
            for word in words]


def shown(letter: str) -> str:
    """A derived letter as people write it: `⌈a·d/w⌉` is rounded up."""
    if "/w" not in letter and not ("*" in letter and "/" in letter):
        return letter
    share, _, multiple = letter.partition("^")
    share = f"⌈{share.replace('*', '·')}⌉"
    return f"{share}^{multiple}" if multiple else share


NOTHING: Key = (0, ())


def settled(key: Key, numbers: Mapping[str, Any]) -> Key:
    """A size without choices between something and nothing: what the numbers choose; `NOTHING` if it is that."""
    if key[0] == "+":
        parts = [part for part in (settled(part, numbers) for part in key[1:]) if part != NOTHING]
        return ("+", *parts) if len(parts) > 1 else parts[0] if parts else NOTHING
    if key[0] != "from" or NOTHING not in key[4:]:
        return key
    _, least, divisor, choices, large, small = key
    chosen = any(count >= least and count % divisor == 0
                 for count in (product(1, letters, numbers) for letters in choices))
    result: Key = large if chosen else small
    return result


def special_text(key: Key, numbers: Mapping[str, Any] | None) -> str:
    """Sums, blocks and choices (replay.py, special_size); with numbers a choice is made."""
    if key[0] == "+":
        return " + ".join(size_text(part, numbers) for part in key[1:])
    if key[0] == "smaller":
        return f"min({size_text(key[1], numbers)}, {size_text(key[2], numbers)})"
    if key[0] == "blocks":
        return f"{key[1]}·⌈{'·'.join(factors(key[3], numbers))}/{key[2]}⌉"
    if key[0] == "smaller side squared":
        left, right = ("·".join(factors(side, numbers)) for side in key[2:])
        return f"{key[1]}·min({left}, {right})²"
    if key[0] == "times largest":
        return f"({size_text(key[1], numbers)})·⌈largest tensor/{key[2]}⌉"
    _, least, divisor, choices, large, small = key
    if numbers is not None:
        chosen = any(count >= least and count % divisor == 0
                     for count in (product(1, letters, numbers) for letters in choices))
        return size_text(large if chosen else small, numbers)
    what = "·".join(factors(choices[0], None)) if len(choices) == 1 else "any tensor's elements"
    fits = f" and a multiple of {divisor}" if divisor > 1 else ""
    return f"{size_text(large)} if {what} ≥ {least}{fits}, else {size_text(small)}"


ORDER = "MbsVTPnEKxafkdhrwcpCg"


def ordered(letters: tuple[str, ...]) -> list[str]:
    """Letters in the order people write them: b·s·h, V·h, h·f."""
    return sorted(letters, key=lambda word: (ORDER.find(word[:1]) % 100, word))


def terms(counts: Mapping[Key, Count], numbers: Mapping[str, Any]) -> tuple[str, str]:
    """A sum of counted sizes, largest first, in letters and in numbers."""
    def total(item: tuple[Key, Count]) -> int:
        from peakmem.estimate.replay import size

        return int(size(item[0], numbers)) * number_of(item[1], numbers)

    merged: dict[Key, Count] = {}
    for key, count in counts.items():
        into = merged.setdefault(settled(key, numbers), {})
        for letter, times in count.items():
            into[letter] = into.get(letter, 0) + times
    merged.pop(NOTHING, None)
    chosen = sorted(((key, count) for key, count in merged.items() if number_of(count, numbers)),
                    key=lambda item: (-total(item), str(item[0])))
    letters = " + ".join(term(key, count, None) for key, count in chosen)
    figures = " + ".join(term(key, count, numbers) for key, count in chosen)
    return letters or "0", figures or "0"


def term(key: Key, count: Count, numbers: Mapping[str, Any] | None) -> str:
    times, one = count_text(count, numbers), size_text(key, numbers)
    if not times:
        return one
    one = f"({one})" if " + " in one else one
    return f"({times})·{one}" if " " in times else f"{times}·{one}"
