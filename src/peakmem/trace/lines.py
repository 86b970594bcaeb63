"""Blocks of one traced step gathered into lines of a ledger."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from peakmem.ledger import Line

from .blocks import Block
from .scratch import Taken
from .summary import rounded

KIND_OF = {
    "parameter": "weights",
    "buffer": "weights",
    "weight_cast": "weights",
    "unsharded": "weights",
    "gradient": "gradients",
    "optimizer_state": "optimizer_state",
    "saved": "activations",
    "held": "activations",
    "loss": "temporary",  # between forward and backward: an activation, see `_held_as_activations`
    "recomputed": "activations",
    "input": "temporary",
    "communication": "communication",
    "temporary": "temporary",
}
WHY = {
    "parameter": "a parameter",
    "buffer": "a buffer of the module",
    "input": "a tensor of the batch",
    "weight_cast": "autocast's low-precision copy of a parameter",
    "unsharded": "a parameter made whole from its shards",
    "gradient": "the gradient of a parameter",
    "optimizer_state": "the optimizer's state of a parameter",
    "saved": "some backward node needs it",
    "held": "alive after the forward, though no backward node saved it",
    "loss": "what backward begins with",
    "recomputed": "made by the second run of a checkpointed layer",
    "communication": "what collectives read from or write to",
    "temporary": "no node needs it longer",
}


def kind_of(block: Block) -> str:
    """Return the ledger's kind of a block."""
    if block.kind not in ("held", "temporary"):
        return KIND_OF[block.kind]
    return "activations" if block.saved or block.kind == "held" else "temporary"


class Lines:
    """Blocks of one step gathered into lines: alike but for the number of their layer."""

    def __init__(self, alive: Iterable[Block]) -> None:
        self.count: Counter[tuple[str, str, int, str]] = Counter()
        self.born: dict[tuple[str, str, int, str], str] = {}
        self.freed: dict[tuple[str, str, int, str], str] = {}
        for block in alive:
            self._born(block, "start")

    @staticmethod
    def _key(block: Block) -> tuple[str, str, int, str]:
        if block.name:
            return alike(block.name), kind_of(block), rounded(block.bytes), block.kind
        module = alike(block.module)
        what = block.op.removeprefix("aten::").split(".")[0] or block.kind
        return f"{module}/{what}" if module else what, kind_of(block), rounded(block.bytes), block.kind

    def _born(self, block: Block, moment: str) -> None:
        key = self._key(block)
        self.count[key] += 1
        self.born.setdefault(key, moment)

    def saw(self, block: Block, change: int, moment: str) -> None:
        """Count a birth or note an end."""
        if change > 0:
            self._born(block, moment)
        else:
            self.freed[self._key(block)] = moment

    def made(self, at_peak: Iterable[Block]) -> tuple[Line, ...]:
        """Return the lines in order of birth."""
        held = Counter(self._key(block) for block in at_peak)
        return tuple(
            Line(
                name=key[0],
                kind=key[1],
                bytes=key[2],
                count=count,
                formula="",
                substituted="",
                born=self.born[key],
                freed=self.freed.get(key, ""),
                why=WHY[key[3]],
                source="traced",
                at_peak=held[key],
            )
            for key, count in self.count.items()
        )


def alike(module: str) -> str:
    """Return a module's name with ``*`` for the number of its layer."""
    return re.sub(r"\.\d+(?=\.|$)", ".*", module)


def lines_of_scratch(taken: Iterable[tuple[Taken, str]]) -> Iterator[Line]:
    """Yield a line for each sort of memory that kernels took for themselves; each with the moment when."""
    count: Counter[tuple[str, int, str]] = Counter()
    moments: dict[tuple[str, int, str], str] = {}
    for each, moment in taken:
        for name, size in each.pieces:
            place = alike(each.module)
            key = f"{place}/{name}" if place else name, rounded(size), each.source
            count[key] += 1
            moments.setdefault(key, moment)
    why = "inside the kernel, until it returns; no tensor owns it"
    for (name, size, source), times in count.items():
        moment = moments[name, size, source]
        yield Line(name, "temporary", size, times, "", "", moment, moment, why, source, scratch=True)
