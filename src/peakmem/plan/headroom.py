"""Does it fit: one predicate for the answer, `fit`, `--fail-over` and the page."""

from __future__ import annotations

from peakmem.answers import Headroom
from peakmem.ledger import Ledger
from peakmem.tables.device import context
from peakmem.tables.gpus import GPU, find_gpu


def headroom(ledger: Ledger, gpu: GPU | str) -> Headroom:
    """The room on a GPU: best total known + upper end of the context ≤ what PyTorch reports.

    Errors: UnknownName, Impossible for a name that is no GPU or may be several.
    """
    row = find_gpu(gpu) if isinstance(gpu, str) else gpu
    used, total = best_total(ledger)
    torch = str(ledger.run.get("torch") or "2.13")
    try:
        outside = context(row, torch)
    except (ValueError, IndexError):  # a version that is no number, from a file
        outside = context(row)
    capacity = row.capacity
    return Headroom(row.name, used, total, (outside.low * 2**20, outside.high * 2**20),
                    row.sold if capacity is None else capacity, capacity is None, row.note)


def best_total(ledger: Ledger) -> tuple[int, str]:
    """The total nearest to what the device must hold, in bytes, and what it leaves out."""
    totals = ledger.totals
    if totals.reserved is not None:
        return totals.reserved, "reserved"
    if totals.allocated is not None:
        return totals.allocated, "allocated, without fragmentation"
    return totals.tensors, "in tensors, without kernel scratch and fragmentation"
