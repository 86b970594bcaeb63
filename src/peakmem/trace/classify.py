"""What each storage of a trace was for. One storage has one kind for its whole life."""

from __future__ import annotations

from .blocks import Block
from .tracer import Tracer

KINDS = (
    "parameter",
    "buffer",
    "input",
    "gradient",
    "optimizer_state",
    "saved",  # some backward node needs it
    "weight_cast",  # autocast's low-precision copy of a parameter
    "held",  # alive after a forward for another reason
    "loss",  # what backward begins with
    "recomputed",  # made by the second run of a checkpointed layer
    "temporary",
)


def classify(tracer: Tracer) -> None:
    """Set the kind of every block that has none yet."""
    live: dict[Block, None] = {}
    ends = {tracer.phases[i + 1][2] for i, (name, _, _) in enumerate(tracer.phases[:-1]) if name == "forward"}
    for i, (block, change) in enumerate(tracer.events):
        if i in ends:
            for kept in live:
                kept.kind = kept.kind or _kept(kept, tracer.keeps)
        if change > 0:
            live[block] = None
        else:
            live.pop(block, None)
    for block, _ in tracer.events:
        block.kind = block.kind or _other(block)


def _kept(block: Block, operations: frozenset[str]) -> str:
    if block.cast_of is not None:
        return "weight_cast"
    block.saved = block.saved or block.op in operations  # held by checkpointing, which has no node for it
    return "saved" if block.saved else "held"


def _other(block: Block) -> str:
    if block.cast_of is not None:
        return "weight_cast"
    return "recomputed" if block.rerun else "temporary"
