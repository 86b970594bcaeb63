"""How many bytes a figure is, and which of our numbers it is to be compared with."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from peakmem.errors import printable
from peakmem.measured.programs import program_of
from peakmem.measured.rows import NotExpressed, Row

UNITS: Mapping[str, int] = {
    "bytes": 1, "MB(1e6)": 10**6, "GB(1e9)": 10**9, "MiB": 2**20, "GiB": 2**30,
    "MiB (labelled MB)": 2**20, "GiB (labelled GB)": 2**30, "GiB (MB label)": 2**20,
}
"""The unit that a figure really has: some pages print MB and divide by 2^20."""

READINGS: Mapping[str, str] = {
    "max_memory_allocated": "allocated",
    "memory_allocated": "allocated at the end",
    "max active (active_bytes.all.peak)": "active",
    "max_memory_reserved": "reserved",
    "nvidia-smi": "device",
    "device used (cudaMemGetInfo)": "device",
    "per-kind: weights": "weights",
    "per-kind: KV cache pool": "KV cache",
    "per-kind: weights per GPU": "weights",
    "per-kind: KV cache pool per GPU": "KV cache",
}
"""What a counter counts. One stream: what is active is what is allocated."""


def bytes_of(row: Row) -> int:
    """The published figure in bytes. Errors: NotExpressed."""
    unit = UNITS.get(row["unit"])
    if unit is None:
        raise NotExpressed(f"nobody can tell which unit {printable(row['unit'] or 'none', 40)} is")
    try:
        value = float(row["value"])
    except ValueError:
        raise NotExpressed(f"the figure is no number: {printable(row['value'], 40)}") from None
    if not isfinite(value) or not 0 < value * unit < 2**53:
        raise NotExpressed(f"the figure is out of range: {printable(row['value'], 40)}")
    return round(value * unit)


def reading_of(row: Row) -> str:
    """Which of our numbers the figure is to be compared with. Errors: NotExpressed."""
    found = program_of(row).reading or READINGS.get(row["metric"])
    if found is None:
        raise NotExpressed(f"the counter is none of ours: {printable(row['metric'] or 'none', 60)}")
    if "static, after" in row["kind"] and found in ("allocated", "reserved", "device"):
        return f"{found} after load"
    return found
