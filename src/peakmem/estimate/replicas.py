"""Data parallel: every GPU holds everything, and gradients are averaged in buckets (DistributedDataParallel).

Source: torch 2.13.0, csrc/distributed/c10d/reducer.cpp (rebuild_buckets, compute_bucket_assignment_by_size) and
nn/parallel/distributed.py; Li et al. 2020, https://arxiv.org/abs/2006.15704.

By default (gradient_as_bucket_view=False) buckets are tensors beside the gradients, as large as all of them, and are
there all the time. After the first step they are made anew in the order in which gradients arrive; one is full when it
holds 25 MiB or more, the first at 1 MiB, so that the last layers can go early.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from peakmem.estimate.interpret import interpret
from peakmem.estimate.layout import BYTES, Dims, flat
from peakmem.estimate.replay import ROUNDING, product, value
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Parameter, Tape, Tensor
from peakmem.estimate.whole import Whole, buffer

FIRST, LATER = 1 << 20, 25 << 20


class Replicas(Whole):
    """Nothing is divided; the reducer's buckets are one line, whose letter is counted by `bucket_bytes`."""

    source = "torch 2.13.0 csrc/distributed/c10d/reducer.cpp"

    def __init__(self, tape: Tape, m: Structure) -> None:
        super().__init__(tape, m)
        self.buckets: Tensor | None = None
        self.order: list[Parameter] = []
        tape.arrived = self.arrived

    def parameter(self, shape: Dims, dtype: str, name: str, trained: bool, fold: str) -> Parameter:
        p = super().parameter(shape, dtype, name, trained, fold)
        if trained and self.buckets is None:
            self.buckets = buffer(self.tape, (1, ("buckets",)), dtype, "gradient buckets",
                                  "gradients on their way to all GPUs, beside the gradients themselves")
        return p

    def arrived(self, p: Parameter) -> None:
        if p not in self.order:
            self.order.append(p)


def bucket_bytes(m: Structure, numbers: Mapping[str, Any]) -> int:
    """What all buckets take, each in blocks of 512 bytes."""
    ways = interpret(m).parts
    assert isinstance(ways, Replicas)
    held: dict[str, int] = {}
    limit: dict[str, int] = {}
    total = 0
    for dtype, size in arrivals(ways.order, numbers):
        held[dtype] = held.get(dtype, 0) + size
        if held[dtype] >= limit.get(dtype, FIRST):
            total += rounded(held.pop(dtype))
            limit[dtype] = LATER
    return total + sum(rounded(size) for size in held.values())


def arrivals(order: list[Parameter], numbers: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Dtype and bytes of each gradient, in order; a repeated layer's come again for each repetition."""
    for fold, layer in groupby(order, lambda p: p.fold):
        sizes = [(p.dtype, product(BYTES[p.dtype], flat(p.dims), numbers)) for p in layer]
        for _ in range(value(fold, numbers) if fold else 1):
            yield from sizes


def rounded(size: int) -> int:
    return -(-size // ROUNDING) * ROUNDING
