"""Allocated, reserved and device totals: the step's requests run through PyTorch's allocator, simulated."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from peakmem.estimate.allocations import Requests
from peakmem.estimate.interpret import interpret
from peakmem.estimate.structure import Structure
from peakmem.estimate.walk import regions_of
from peakmem.immutable import replace
from peakmem.ledger import Line, Totals
from peakmem.tables.device import HANDLES, context, cublas_workspace
from peakmem.tables.gpus import GPU, find_gpu

MOST_LAYERS = 2_000  # beyond, one request after the other takes too long for an answer at once
MOST_REQUESTS = 400_000  # of one step: a loop over tokens in every layer makes as many


@lru_cache(maxsize=64)
def workspace_of(gpu: str) -> tuple[int, str]:
    """Bytes of one cuBLAS workspace, and the source; without a GPU, of an sm80."""
    return cublas_workspace(find_gpu(gpu).capability if gpu else "8.0")


def totals_of(structure: Structure, numbers: Mapping[str, Any], layers: int, gpu: str, tensors: int) -> Totals:
    """All four totals on a named GPU. With very deep models and very long loops only `tensors` is known.

    Two steps are run, the first makes the optimizer states; the cuBLAS workspaces come with the first products of
    the forward and of the backward. Nothing else uses the GPU, expandable segments are off. Where what is cached would
    not find room, it is given back and asked for again, as PyTorch does before it says that memory is out.
    """
    if layers > MOST_LAYERS:
        return Totals(tensors)
    from peakmem.allocator import Settings, replay

    requests = Requests(numbers)
    workspace = workspace_of(gpu)[0]
    steady = interpret(structure)
    if requests.number(steady) > MOST_REQUESTS:
        return Totals(tensors)
    first = interpret(replace(structure, step="first")) if structure.run == "training" else steady
    names = [name for name, _ in regions_of(first)]
    seen: set[str] = set()
    for i, name in enumerate(names):
        family = name.split(".")[0]
        if family in ("forward", "backward", "prefill") and family not in seen:
            requests.extra(workspace)
        seen.add(family)
        requests.take(first, slice(i, i + 1))
    if steady is not first:
        requests.take(steady, slice(1, None))
    found = replay(requests.list)
    row = find_gpu(gpu)
    outside = context(row)
    room = None if row.capacity is None else row.capacity - outside.high * 2**20
    if room is not None and found.allocated.peak <= room < found.reserved.peak:
        limited = replay(requests.list, Settings(capacity=row.capacity, outside=outside.high * 2**20))
        found = found if limited.out_of_memory else limited
    reserved = found.reserved.peak
    return Totals(tensors, found.allocated.peak, reserved,
                  (reserved + outside.low * 2**20, reserved + outside.high * 2**20))


def lines_outside(structure: Structure, gpu: str) -> tuple[Line, ...]:
    """What no tensor owns and no operation frees: cuBLAS workspaces, and the CUDA context with its range."""
    size, source = workspace_of(gpu)
    row: GPU | None = find_gpu(gpu) if gpu else None
    outside = context(row)
    handles = HANDLES if structure.run == "training" else 1
    low, high = outside.low * 2**20, outside.high * 2**20
    threads = "one for the thread that runs forward, one for the thread that runs backward" if handles > 1 else "one"
    return (
        Line("cuBLAS workspace", "temporary", size, handles, str(size), str(size), "forward", "",
             f"matrix products share it, {threads}; it is kept, inside the allocator", source, True),
        Line("CUDA context", "context", high, 1, f"{low} to {high}", f"{low} to {high}", "start", "",
             f"the driver's, outside the allocator: between {outside.low} and {outside.high} MiB "
             f"({outside.name} GPUs); its upper end is counted", outside.source, True),
    )
