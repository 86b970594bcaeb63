"""Tensors as a weights file lists them: names, shapes, dtypes, bytes; no data is read.

What a file says of itself is checked against its size, and against limits, before anything is read or looped over.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from peakmem.quantity import counted


class Header(NamedTuple):
    """One tensor: its elements may lie packed, so bytes are no multiple of them."""

    name: str
    dtype: str
    elements: int
    bytes: int


class Found(NamedTuple):
    """All tensors of one model: how many, by dtype (tensors, elements, bytes), in all; the architecture, if named."""

    file: str
    tensors: int
    by_dtype: dict[str, tuple[int, int, int]]
    architecture: str = ""

    @property
    def elements(self) -> int:
        return sum(row[1] for row in self.by_dtype.values())

    @property
    def bytes(self) -> int:
        return sum(row[2] for row in self.by_dtype.values())

    def words(self) -> str:
        """`291 tensors, 8,030,261,248 elements, 16,060,522,496 bytes (BF16)`."""
        rows = sorted(self.by_dtype.items(), key=lambda item: -item[1][2])
        kinds = ", ".join(dtype if len(rows) == 1 else f"{dtype} {row[2]:,}" for dtype, row in rows[:6])
        counts = (self.tensors, "tensor"), (self.elements, "element"), (self.bytes, "byte")
        return f"{', '.join(counted(*count) for count in counts)} ({kinds})"


def summed(file: str, headers: Iterable[Header], architecture: str = "") -> Found:
    """Tensors of several files as one."""
    by_dtype: dict[str, tuple[int, int, int]] = {}
    tensors = 0
    for header in headers:
        tensors += 1
        count, elements, size = by_dtype.get(header.dtype, (0, 0, 0))
        by_dtype[header.dtype] = count + 1, elements + header.elements, size + header.bytes
    return Found(file, tensors, by_dtype, architecture)
