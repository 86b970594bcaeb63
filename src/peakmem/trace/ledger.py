"""A trace as a ledger: the same account as an estimate's, read off the events."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from peakmem.ledger import KINDS, ChartRow, Detail, KindPeak, Ledger, Line, Parameters, Peak, Totals
from peakmem.ledger_json import from_json
from peakmem.tables.kernels import GPU

from .classify import classify
from .process import in_process
from .summary import first_of_step, levels_of, phase_bytes, rounded
from .thirds import chart_ends
from .tracer import Block, Tracer

KIND_OF = {
    "parameter": "weights",
    "buffer": "weights",
    "weight_cast": "weights",
    "unsharded": "weights",
    "gradient": "gradients",
    "optimizer_state": "optimizer_state",
    "saved": "activations",
    "held": "temporary",  # between forward and backward: activations, see `_held_as_activations`
    "recomputed": "activations",
    "input": "temporary",
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
    "recomputed": "made by the second run of a checkpointed layer",
    "temporary": "no node needs it longer",
}
PHASE = {"zero": "clear"}


def ledger_of(tracer: Tracer, run: Mapping[str, Any], parameters: Parameters, notes: Iterable[str] = ()) -> Ledger:
    """Return the ledger of a trace's last step. `run`: versions and settings, `notes`: what was assumed."""
    classify(tracer)
    levels = levels_of(tracer, rounded)
    numbers = phase_bytes(tracer, levels, rounded)
    start = tracer.phases[first_of_step(tracer)][2]
    peak = max(levels[start:])
    names = (
        "step_start",
        "after_forward",
        "forward_peak",
        "after_backward",
        "backward_peak",
        "optimizer_peak",
        "step_end",
    )
    return Ledger(
        origin="trace",
        run=run,
        notes=(*notes, *tracer.notes, *answers_given(tracer)),
        totals=Totals(tensors=peak),
        phases={name: numbers[name] for name in names},
        parameters=parameters,
        walk=lambda: _Walk(tracer).detail(),
        unroll=lambda: _Walk(tracer).timeline(),
    )


def trace(setting: Mapping[str, Any], gpu: GPU | None = None, notes: Iterable[str] = ()) -> Ledger:
    """Return the ledger of one setting (see `record.trace`), traced in a process of its own.

    Raises `TraceError` if that process dies, and what torch or transformers raise.
    """
    return from_json(in_process(_as_json, dict(setting), gpu, tuple(notes)))


def _as_json(setting: Mapping[str, Any], gpu: GPU | None, notes: tuple[str, ...]) -> dict[str, Any]:
    import torch
    import transformers

    from . import record

    tracer, model, calls = record.traced(setting, gpu)
    total, trained = record.parameter_counts(model)
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    run = {"versions": versions, "gpu": (gpu or GPU()).name, "attention_kernels": calls, **setting}
    # Which experts a token meets is not in a trace.
    return ledger_of(tracer, run, Parameters(total, trained, total), notes).as_json(timeline=True)


def answers_given(tracer: Tracer) -> tuple[str, ...]:
    """Return a note for each module that asked a fake tensor for its contents."""
    return tuple(
        f"{module or 'the model'} asked a tensor for its value; it was told {value}"
        for (_, module), value in sorted(tracer.answers.items())
    )


class _Walk:
    """One pass over the last step's events, counting live bytes by kind."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        self.first = first_of_step(tracer)
        self.start = tracer.phases[self.first][2]
        self.end = tracer.phases[-1][2]
        self.live: dict[Block, int] = {}
        self.sizes = dict.fromkeys(KINDS, 0)
        for block, change in tracer.events[: self.start]:
            self._apply(block, change, -1)

    def _apply(self, block: Block, change: int, at: int) -> None:
        size = rounded(block.bytes)
        if change > 0:
            self.live[block] = at
            self.sizes[KIND_OF[block.kind]] += size
        else:
            self.live.pop(block, None)
            self.sizes[KIND_OF[block.kind]] -= size

    def detail(self) -> Detail:
        """Return peak, largest moment of each kind, chart and lines."""
        events = self.tracer.events
        at_start = dict(self.sizes)
        total = sum(at_start.values())
        top, top_at, top_kinds, top_live = total, -1, at_start, set(self.live)
        largest = {kind: (size, -1) for kind, size in at_start.items()}
        ends: dict[int, list[str]] = {}
        for i, moment in chart_ends(self.tracer, self.first):
            ends.setdefault(i, []).append(moment)
        rows = [ChartRow("start", total, total, at_start, at_start)]
        row_top, row_kinds = total, at_start
        lines = _Lines(self.live)
        for i in range(self.start, self.end):
            for moment in ends.get(i, ()):
                rows.append(ChartRow(moment, total, row_top, self._held_as_activations(moment), row_kinds))
                row_top, row_kinds = total, dict(self.sizes)
            block, change = events[i]
            self._apply(block, change, i)
            lines.saw(block, change, self._moment(i, block))
            if change < 0:
                total -= rounded(block.bytes)
                continue
            total += rounded(change)
            kind = KIND_OF[block.kind]
            if self.sizes[kind] > largest[kind][0]:
                largest[kind] = self.sizes[kind], i
            if total > row_top:
                row_top, row_kinds = total, dict(self.sizes)
                if total > top:
                    top, top_at, top_kinds, top_live = total, i, row_kinds, set(self.live)
        rows.append(ChartRow("clear", total, row_top, dict(self.sizes), row_kinds))
        kinds = {
            kind: KindPeak(size, self._named(at), "", "", _why(kind), "traced")
            for kind, (size, at) in largest.items()
            if size
        }
        return Detail(Peak(top, self._named(top_at), top_kinds), kinds, tuple(rows), lines.made(top_live))

    def _held_as_activations(self, moment: str) -> dict[str, int]:
        kinds = dict(self.sizes)
        if moment == "F3":
            held = sum(rounded(block.bytes) for block in self.live if block.kind == "held")
            kinds["activations"] += held
            kinds["temporary"] -= held
        return kinds

    def timeline(self) -> tuple[tuple[str, Mapping[str, int]], ...]:
        """Return live bytes by kind after every event."""
        found: list[tuple[str, Mapping[str, int]]] = [("start", dict(self.sizes))]
        for i in range(self.start, self.end):
            block, change = self.tracer.events[i]
            self._apply(block, change, i)
            found.append((self._moment(i, block), dict(self.sizes)))
        return tuple(found)

    def _named(self, at: int) -> str:
        return "start" if at < 0 else self._moment(at, self.tracer.events[at][0])

    def _moment(self, at: int, block: Block) -> str:
        name = next(name for name, _, start in reversed(self.tracer.phases[:-1]) if start <= at)
        return "/".join(part for part in (PHASE.get(name, name), block.module) if part)


def _why(kind: str) -> str:
    return "; ".join(WHY[ours] for ours, theirs in KIND_OF.items() if theirs == kind)


class _Lines:
    """Blocks of one step gathered into lines: alike but for the number of their layer."""

    def __init__(self, alive: Iterable[Block]) -> None:
        self.count: Counter[tuple[str, str, int, str]] = Counter()
        self.born: dict[tuple[str, str, int, str], str] = {}
        self.freed: dict[tuple[str, str, int, str], str] = {}
        for block in alive:
            self._born(block, "start")

    @staticmethod
    def _key(block: Block) -> tuple[str, str, int, str]:
        module = re.sub(r"\.\d+(?=\.|$)", ".*", block.module)
        what = block.op.removeprefix("aten::").split(".")[0] or block.kind
        return f"{module}/{what}" if module else what, KIND_OF[block.kind], rounded(block.bytes), block.kind

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
