"""A trace as a ledger: the same account as an estimate's, read off the events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from peakmem.ledger import KINDS, ChartRow, Detail, KindPeak, Ledger, Line, Parameters, Peak

from .blocks import Block
from .classify import classify
from .lines import KIND_OF, WHY, Lines, kind_of, lines_of_scratch
from .outside import Outside
from .scratch import Taken, not_counted
from .summary import first_of_step, levels_of, phase_bytes, rounded
from .thirds import chart_ends, last_forward
from .tracer import Tracer

PHASE = {"zero": "clear"}


def ledger_of(
    tracer: Tracer, run: Mapping[str, Any], parameters: Parameters, notes: Iterable[str] = (), gpu: str = ""
) -> Ledger:
    """Return the ledger of a trace's last step.

    `run`: versions and settings, `notes`: what was assumed, `gpu`: the one whose totals are wanted.
    """
    classify(tracer)
    levels = levels_of(tracer, rounded)
    numbers = phase_bytes(tracer, levels, rounded)
    start = tracer.phases[first_of_step(tracer)][2]
    names = (
        "step_start",
        "after_forward",
        "forward_peak",
        "after_backward",
        "backward_peak",
        "clip_peak",
        "optimizer_peak",
        "step_end",
    )
    own = {block.op.split(".")[0] for block, _ in tracer.events if _foreign(block.op)}
    outside = Outside(gpu)
    return Ledger(
        origin="trace",
        run=run,
        notes=(*notes, *tracer.notes, *answers_given(tracer), *not_counted(tracer.ran, own)),
        totals=outside.totals(tracer, max(levels[start:])),
        phases={name: numbers[name] for name in names if name in numbers},
        parameters=parameters,
        walk=lambda: _Walk(tracer).detail(outside.lines()),
        unroll=lambda: _Walk(tracer).timeline(),
    )


def _foreign(op: str) -> bool:
    return "::" in op and not op.startswith(("aten::", "prims::", "c10d::", "_c10d_functional::", "fsdp::"))


def answers_given(tracer: Tracer) -> tuple[str, ...]:
    """Return a note for each module, and for the optimizer, that asked a fake tensor for its contents."""
    given: dict[str, list[str]] = {}
    for who, operation, value in sorted(tracer.answers, key=str):
        given.setdefault(who, []).append(f"{value} ({operation})" if operation else str(value))
    return tuple(f"{who} asked a tensor for its value; it was told {', '.join(all_)}" for who, all_ in given.items())


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
            self.sizes[kind_of(block)] += size
        else:
            self.live.pop(block, None)
            self.sizes[kind_of(block)] -= size

    def detail(self, others: Iterable[Line] = ()) -> Detail:
        """Return peak, largest moment of each kind, chart and lines; `others`: lines of what no tensor owns."""
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
        lines = Lines(self.live)
        last = last_forward(self.tracer)
        for i in range(self.start, self.end + 1):
            if i == last:
                row_top, row_kinds = total, dict(self.sizes)
            for moment in ends.get(i, ()):
                rows.append(ChartRow(moment, total, row_top, self._held_as_activations(moment), row_kinds))
                row_top, row_kinds = total, dict(self.sizes)
            if i == self.end:  # where zeroing gradients makes and frees nothing, the step ends with the last event
                break
            block, change = events[i]
            self._apply(block, change, i)
            lines.saw(block, change, self._moment(i, block))
            if change < 0:
                total -= rounded(block.bytes)
                continue
            total += rounded(change)
            kind = kind_of(block)
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
        scratch = lines_of_scratch(
            (each, self._place(each)) for each in self.tracer.scratch if each.begin >= self.start
        )
        made = (*lines.made(top_live), *scratch, *others)
        return Detail(Peak(top, self._named(top_at), top_kinds), kinds, tuple(rows), made)

    def _place(self, taken: Taken) -> str:
        return self._at(max(taken.begin - 1, 0), taken.module)

    def _held_as_activations(self, moment: str) -> dict[str, int]:
        kinds = dict(self.sizes)
        if moment == "F3":
            held = sum(rounded(block.bytes) for block in self.live if block.kind == "loss")
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
        return self._at(at, block.module)

    def _at(self, at: int, module: str) -> str:
        name = next(name for name, _, start in reversed(self.tracer.phases[:-1]) if start <= at)
        return "/".join(part for part in (PHASE.get(name, name), module) if part)


def _why(kind: str) -> str:
    return "; ".join(WHY[ours] for ours, theirs in KIND_OF.items() if theirs == kind)
