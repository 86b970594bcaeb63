"""Ledgers from files and standard input. Somebody else may have written them: types and signs are checked first."""

from __future__ import annotations

import io
import sys
from collections.abc import Mapping
from typing import Any

from peakmem.errors import Unreadable, printable
from peakmem.files import is_stream, read
from peakmem.ledger import Ledger
from peakmem.ledger_json import LARGEST_FILE

HEAD = 256
"""Bytes in which a ledger says that it is one."""
MARK = '"peakmem.ledger/'
MOST = 2**80
"""No count is larger: a float can hold it, and Python prints it."""


def is_ledger(word: str) -> bool:
    """Whether a file, or what comes on standard input, says that it is a ledger."""
    if word == "-":
        text = sys.stdin.read(LARGEST_FILE + 1)
        sys.stdin = Again(text)
        return MARK in text[:HEAD]
    if is_stream(word):
        return True
    try:
        return MARK.encode() in read(word, HEAD)
    except Unreadable:
        return False


class Again(io.TextIOWrapper):
    """Standard input, to be read once more."""

    def __init__(self, text: str) -> None:
        raw = io.BytesIO(text.encode("utf-8", "surrogateescape"))
        super().__init__(raw, encoding="utf-8", errors="surrogateescape")


def read_ledger(word: str) -> Ledger:
    """A ledger whose every part is of the type that it should be. Errors: Unreadable."""
    ledger = Ledger.read(word)
    name = "standard input" if word == "-" else printable(word)
    try:
        check(ledger)
    except (ValueError, TypeError, AttributeError) as error:
        raise Unreadable(f"{name}: part of a ledger is odd: {printable(str(error))}") from None
    try:
        agree(ledger)
    except ValueError as error:
        raise Unreadable(f"{name} contradicts itself: {error}") from None
    return ledger


def check(ledger: Ledger) -> None:
    """Errors: ValueError, TypeError, AttributeError: names the part."""
    texts(ledger, "origin")
    if not isinstance(ledger.run, Mapping):
        raise ValueError("run")
    for note in ledger.notes:
        if not isinstance(note, str):
            raise ValueError("notes")
    totals = ledger.totals
    known = [size for size in (totals.tensors, totals.allocated, totals.reserved, totals.host, totals.disk)
             if size is not None]
    for size in (*known, *(totals.device or ())):
        count(size, "totals")
    if totals.tensors is None or len(totals.device or (0, 0)) != 2:
        raise ValueError("totals")
    counts(ledger.phases, "phases")
    numbers(ledger.parameters, "total trained active")
    texts(ledger.peak, "moment formula substituted")
    numbers(ledger.peak, "bytes")
    counts(ledger.peak.by_kind, "by_kind")
    for kind in ledger.kinds.values():
        numbers(kind, "largest")
        texts(kind, "at formula substituted why source")
    for row in ledger.chart:
        texts(row, "moment")
        numbers(row, "end peak")
        counts(row.by_kind, "by_kind")
        counts(row.peak_by_kind, "peak_by_kind")
    for line in ledger.lines:
        texts(line, "name kind formula substituted born freed why source")
        numbers(line, "bytes count at_peak")
    for moment, by_kind in ledger.timeline:
        if not isinstance(moment, str):
            raise ValueError("timeline")
        counts(by_kind, "timeline")


def agree(ledger: Ledger) -> None:
    """What is said twice is the same: the peak is its kinds, its lines, the top of the chart. Errors: ValueError."""
    peak, totals = ledger.peak, ledger.totals
    alive: dict[str, int] = {}
    for line in ledger.lines:
        if not line.scratch and line.place == "device":
            alive[line.kind] = alive.get(line.kind, 0) + line.bytes_at_peak
    same(peak.bytes, totals.tensors, "peak.bytes", "totals.tensors")
    same(peak.bytes, sum(peak.by_kind.values()), "peak.bytes", "the sum of peak.by_kind")
    for kind in {**alive, **peak.by_kind}:
        same(peak.by_kind.get(kind, 0), alive.get(kind, 0), f"peak.by_kind {kind}", "its lines at the peak")
    for row in ledger.chart:
        same(row.end, sum(row.by_kind.values()), f"chart {row.moment} end", "the sum of by_kind")
        same(row.peak, sum(row.peak_by_kind.values()), f"chart {row.moment} peak", "the sum of peak_by_kind")
    if ledger.chart:
        same(peak.bytes, max(row.peak for row in ledger.chart), "peak.bytes", "the highest of the chart")
    known = [size for size in (totals.tensors, totals.allocated, totals.reserved) if size is not None]
    if known != sorted(known) or totals.device and totals.device[0] > totals.device[1]:
        raise ValueError(f"totals: {', '.join(f'{size:,}' for size in known)} must not fall")
    if max(ledger.parameters.trained, ledger.parameters.active) > ledger.parameters.total:
        raise ValueError("parameters: more are trained or active than there are")


def same(a: int, b: int, first: str, second: str) -> None:
    """Errors: ValueError, naming both."""
    if a != b:
        raise ValueError(f"{printable(first)[1:-1]} is {a:,}, {second} {b:,}")


def texts(part: object, names: str) -> None:
    """Fields that are text."""
    for name in names.split():
        if not isinstance(getattr(part, name), str):
            raise ValueError(name)


def numbers(part: object, names: str) -> None:
    """Fields that are counts."""
    for name in names.split():
        count(getattr(part, name), name)


def counts(part: object, name: str) -> None:
    """A mapping from names to counts."""
    if not isinstance(part, Mapping):
        raise ValueError(name)
    for key, value in part.items():
        count(value, f"{name}: {key}")


def count(value: Any, name: str) -> None:
    """A whole number from 0 on."""
    if type(value) is not int or not 0 <= value < MOST:
        raise ValueError(f"{name}: {printable(value)}")
