"""Published, measured runs against our estimates: like with like, with signed errors, and what is demanded of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import ceil
from pathlib import Path
from typing import Any

from peakmem.answers import Accuracy, Compared, Summary, Threshold
from peakmem.errors import PeakmemError
from peakmem.estimate import estimate
from peakmem.estimate.reserved import workspace_of
from peakmem.ledger import Ledger
from peakmem.measured.models import model_of
from peakmem.measured.rows import NotExpressed, Row, read_rows
from peakmem.measured.settings import settings_of
from peakmem.measured.units import READINGS, bytes_of, reading_of
from peakmem.setup import Setup
from peakmem.tables.device import HANDLES
from peakmem.tables.quantised import BNB_4BIT

CLOSE = 5.0  # percent
SHARE_EXPRESSED, SHARE_CLOSE, MEDIAN, RESERVED, SERVING = 75.0, 90.0, 2.0, 10.0, 5.0
"""In percent: of the rows that count, how many must be expressed (60 of our own table's 80), how many of these within
5, the largest median; the largest error of reserved memory, and of inference."""
ALLOCATED = ("allocated", "active", "allocated at the end", "allocated after load")


def accuracy(path: str | Path | None = None) -> Accuracy:
    """Estimate every row of a table, our own without a path. Errors: Unreadable."""
    compared: list[Compared] = []
    refused: list[tuple[str, str]] = []
    missing = 0
    for row in read_rows(path):
        try:
            compared.append(compare(row))
        except (NotExpressed, PeakmemError) as reason:
            refused.append((row.name, str(reason)))
            missing += counts(row)
    return Accuracy(tuple(compared), tuple(refused), summaries(compared), tuple(thresholds(compared, missing)))


def compare(row: Row) -> Compared:
    """One row: its figure and ours. Errors: NotExpressed, and those of the estimate."""
    if row["complete"] != "1":
        raise NotExpressed("incomplete: its source leaves something open")
    published, reading = bytes_of(row), reading_of(row)
    if reading not in OURS:
        raise NotExpressed(f"{reading}: the allocator is simulated for whole steps only")
    settings, model = settings_of(row), model_of(row)
    if model.experts and settings.get("weights") in (*BNB_4BIT, "int8", "gptq") and settings["run"] == "training":
        raise NotExpressed("packed experts: up to transformers 4.x every expert has linear layers of its own, which "
                           "are packed; the code mirrored here stacks them, and packs none")
    ledger = estimate(model, Setup.of(**settings), allocator=reading in ("allocated", "active", "reserved", "device"))
    ours = OURS[reading](ledger, settings)
    nearest = min(max(published, ours[0]), ours[1])  # a range holds what lies inside it
    return Compared(row.name, row.family, row["model"], reading, published, nearest,
                    100 * (nearest - published) / published, counts(row), row["kind"] == "inference",
                    row.count("n_gpus", 1))


def counts(row: Row) -> bool:
    """Whether the thresholds are about it: one GPU, training, allocated or active, everything known."""
    allocated = READINGS.get(row["metric"]) in ALLOCATED
    return (allocated and row["complete"] == "1" and row["kind"].startswith("train")
            and row["n_gpus"] in ("", "1") and row["sharding"] in ("", "none"))


def total(name: str) -> Callable[[Ledger, dict[str, Any]], tuple[int, int]]:
    """One of the ledger's totals, as a range. Errors: NotExpressed where it is not known."""
    def found(ledger: Ledger, settings: dict[str, Any]) -> tuple[int, int]:
        value = getattr(ledger.totals, name)
        if value is None:
            raise NotExpressed(f"the {name} total is not known for this run")
        return value if isinstance(value, tuple) else (value, value)
    return found


def at_the_end(ledger: Ledger, settings: dict[str, Any]) -> tuple[int, int]:
    """After the last step: what the step leaves; after the last token: weights and cache. And cuBLAS's workspaces."""
    workspace = workspace_of(settings["gpu"])[0]
    if settings["run"] == "inference":
        held = ledger.kinds["weights"].largest + cache_at_the_end(ledger) + workspace
    else:
        held = ledger.phases["step_end"] + HANDLES * workspace
    return held, held


def cache_at_the_end(ledger: Ledger) -> int:
    """Keys and values after the last token."""
    return sum(line.bytes * line.count for line in ledger.lines if line.kind == "kv_cache" and not line.freed)


def after_load(ledger: Ledger, settings: dict[str, Any]) -> tuple[int, int]:
    """Before the first step."""
    held = ledger.phases["step_start"]
    return held, held


def at_the_end_cache(ledger: Ledger, settings: dict[str, Any]) -> tuple[int, int]:
    held = cache_at_the_end(ledger)
    return held, held


def kind(name: str) -> Callable[[Ledger, dict[str, Any]], tuple[int, int]]:
    def found(ledger: Ledger, settings: dict[str, Any]) -> tuple[int, int]:
        size = ledger.kinds[name].largest
        return size, size
    return found


OURS: dict[str, Callable[[Ledger, dict[str, Any]], tuple[int, int]]] = {
    "allocated": total("allocated"), "active": total("allocated"), "reserved": total("reserved"),
    "device": total("device"), "allocated at the end": at_the_end, "allocated after load": after_load,
    "weights": kind("weights"), "KV cache": at_the_end_cache,
}


def summaries(rows: list[Compared]) -> tuple[Summary, ...]:
    """By reading, then by family; those that count together, first."""
    groups: dict[str, list[Compared]] = {"all that count": [row for row in rows if row.counted]}
    for row in rows:
        groups.setdefault(row.reading, []).append(row)
    for row in rows:
        groups.setdefault(f"{row.family}, {row.reading}", []).append(row)
    return tuple(summary(name, group) for name, group in groups.items() if group)


def summary(name: str, rows: list[Compared]) -> Summary:
    errors = [row.error for row in rows]
    sizes = sorted(map(abs, errors))
    return Summary(name, len(rows), rank(sizes, 0.5), rank(sizes, 0.95), max(errors, key=abs),
                   sum(error < 0 for error in errors), min(errors))


def rank(ordered: list[float], share: float) -> float:
    """The smallest value that this share of all does not exceed."""
    return ordered[max(ceil(share * len(ordered)) - 1, 0)]


def thresholds(rows: list[Compared], missing: int) -> Iterable[Threshold]:
    """What is demanded. missing: rows that would count and are not expressed."""
    if not rows:
        yield Threshold("rows compared", "one at least", "none", False)
    counted = [row.error for row in rows if row.counted]
    every = len(counted) + missing
    share = 100 * len(counted) / every if every else 100.0
    yield Threshold("rows expressed", f"{SHARE_EXPRESSED:g} % or more", f"{len(counted)} of {every}, {share:.0f} %",
                    share >= SHARE_EXPRESSED)
    if counted:
        sizes = sorted(map(abs, counted))
        close = 100 * sum(size <= CLOSE for size in sizes) / len(sizes)
        yield Threshold(f"within {CLOSE:g} %", f"{SHARE_CLOSE:g} % or more of them", f"{close:.1f} %",
                        close >= SHARE_CLOSE)
        yield Threshold("median error", f"{MEDIAN:g} % or less", f"{rank(sizes, 0.5):.2f} %",
                        rank(sizes, 0.5) <= MEDIAN)
        yield Threshold("furthest under", f"{CLOSE:g} % or less", f"{max(-min(counted), 0):.2f} %",
                        min(counted) >= -CLOSE)
    serving = [abs(row.error) for row in rows if row.serves]
    if serving:
        yield Threshold("inference, worst", f"{SERVING:g} % or less", f"{max(serving):.2f} %", max(serving) <= SERVING)
    reserved = [abs(row.error) for row in rows if row.reading == "reserved" and row.gpus == 1]
    if reserved:
        yield Threshold("reserved, worst", f"{RESERVED:g} % or less", f"{max(reserved):.1f} %",
                        max(reserved) <= RESERVED)
