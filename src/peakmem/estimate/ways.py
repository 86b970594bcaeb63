"""How parameters are divided over GPUs, and what lies elsewhere: the class for each choice."""

from __future__ import annotations

from peakmem.estimate.offload import OffloadedFullyShard, OffloadedStage1, OffloadedStage2, OffloadedStage3
from peakmem.estimate.sharding import FullyShard
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tape
from peakmem.estimate.whole import Whole
from peakmem.estimate.zero import Flat, Stage1, Stage2
from peakmem.estimate.zero3 import Stage3

WAYS: dict[str, type[Whole]] = {
    "none": Whole, "zero1": Stage1, "zero2": Stage2, "zero3": Stage3, "fsdp2": FullyShard,
    "distributed optimizer": Flat,
}
OFFLOADED: dict[str, type[Whole]] = {
    "zero1": OffloadedStage1, "zero2": OffloadedStage2, "zero3": OffloadedStage3, "fsdp2": OffloadedFullyShard,
}


def divided(tape: Tape, m: Structure) -> Whole:
    """The way in which this run divides its parameters."""
    return (WAYS if m.offload == "none" else OFFLOADED)[m.shard](tape, m)
