"""The largest batch that fits on a GPU, found by asking the engine again and again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peakmem.answers import Headroom
from peakmem.errors import PeakmemError
from peakmem.estimate import estimate
from peakmem.immutable import immutable
from peakmem.ledger import Ledger
from peakmem.model import Model
from peakmem.plan.headroom import headroom
from peakmem.setup import LIMIT
from peakmem.tables.gpus import find_gpu

ABOVE = 16
"""Sizes that are tried beyond the first that does not fit: kernels, rounding and fragmentation may turn there."""


@immutable
class Fit:
    """batch: the largest that fits, 0: none does; at: the room with it (with 1, if none fits); above: with one more."""

    batch: int
    ledger: Ledger
    at: Headroom
    above: Headroom | None
    asked: int


def fit(model: Model, gpu: str, **settings: Any) -> Fit:
    """Search the largest batch. settings: of `Setup`, without batch.

    Errors: those of the estimate of a batch of 1.
    """
    row = find_gpu(gpu)
    seen: dict[int, tuple[Ledger, Headroom]] = {}

    def at(batch: int) -> tuple[Ledger, Headroom]:
        if batch not in seen:
            ledger = estimate(model, **settings, gpu=gpu, batch=batch)
            seen[batch] = ledger, headroom(ledger, row)
        return seen[batch]

    def fits(batch: int) -> bool:
        try:
            # What the tensors alone exceed needs no simulation of the allocator.
            quick = estimate(model, **settings, gpu=gpu, batch=batch, allocator=False)
            return headroom(quick, row).fits and at(batch)[1].fits
        except PeakmemError:
            if batch == 1:
                raise
            return False

    found = largest(fits)
    ledger, room = at(max(found, 1))
    above = at(found + 1)[1] if 0 < found < LIMIT else None
    return Fit(found, ledger, room, above, len(seen))


def largest(fits: Callable[[int], bool], most: int = LIMIT) -> int:
    """The largest n from 1 to `most` that fits, as far as the search sees; 0: none. n + 1 never fits.

    Doubling finds an end, bisection the edge; then the next sizes above are tried, and the search goes on from
    any that fits.
    """
    low = next((n for n in range(1, min(ABOVE, most) + 1) if fits(n)), 0)
    while low:
        step = 1
        while low + step <= most and fits(low + step):
            low, step = low + step, 2 * step
        high = min(low + step, most + 1)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        above = next((n for n in range(min(low + ABOVE, most), low + 1, -1) if fits(n)), 0)
        if not above:
            break
        low = above
    return low


def as_json(found: Fit) -> dict[str, Any]:
    """The answer in plain containers; batch is null when none fits, and the rest then tells of a batch of 1."""
    at, above = found.at, found.above
    return {
        "batch": found.batch or None,
        "gpu": at.gpu,
        "capacity": at.capacity,
        "capacity_as_sold": at.sold,
        "total": at.total,
        "used": at.used,
        "context": list(at.context),
        "spare": at.spare,
        "one_more_exceeds_by": -above.spare if above else None,
        "peak": found.ledger.totals.tensors,
        "run": dict(found.ledger.run),
        "notes": list(found.ledger.notes),
    }
