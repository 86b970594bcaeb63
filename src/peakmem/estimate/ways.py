"""How parameters are divided over GPUs, and what lies elsewhere: one class a choice, loaded when it is chosen."""

from __future__ import annotations

from importlib import import_module

from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tape
from peakmem.estimate.whole import Whole

WAYS = {
    "ddp": ("replicas", "Replicas"),
    "zero1": ("zero", "Stage1"), "zero2": ("zero", "Stage2"), "zero3": ("zero3", "Stage3"),
    "fsdp2": ("sharding", "FullyShard"), "distributed optimizer": ("zero", "Flat"),
}
OFFLOADED = {
    "zero1": ("offload", "OffloadedStage1"), "zero2": ("offload", "OffloadedStage2"),
    "zero3": ("offload", "OffloadedStage3"), "fsdp2": ("offload", "OffloadedFullyShard"),
}


def divided(tape: Tape, m: Structure) -> Whole:
    """The way in which this run divides its parameters."""
    if m.shard == "none":
        return Whole(tape, m)
    module, name = (WAYS if m.offload == "none" else OFFLOADED)[m.shard]
    way: type[Whole] = getattr(import_module(f"peakmem.estimate.{module}"), name)
    return way(tape, m)
