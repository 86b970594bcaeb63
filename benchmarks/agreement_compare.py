"""One step, estimated and traced: every number that both know, compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from records import event_differences, events_of, level_differences

from peakmem.estimate import estimate, program_of
from peakmem.estimate.interpret import interpret
from peakmem.estimate.replay import replay
from peakmem.estimate.settings import structure_of
from peakmem.ledger import Ledger
from peakmem.ledger_json import from_json
from peakmem.model import Model
from peakmem.readers.hf_config import from_config
from peakmem.setup import Setup
from peakmem.views.matching import unmatched


@dataclass(frozen=True)
class Point:
    """A configuration and settings by name."""

    name: str
    config: Mapping[str, Any]
    settings: Mapping[str, Any]

    @cached_property
    def model(self) -> Model:
        return from_config(dict(self.config), self.name)

    @cached_property
    def setup(self) -> Setup:
        return Setup.of(**self.settings)

    def setting(self) -> dict[str, Any]:
        """What `trace` is asked. Errors: PeakmemError."""
        from peakmem.trace.settings import setting_of

        return setting_of(self.config, self.model, self.setup) | {"gpu": self.setup.gpu}

    def estimate(self) -> Ledger:
        """What the engine says. Errors: PeakmemError."""
        return estimate(self.model, self.setup)

    def given(self) -> str:
        """The settings in one line."""
        return " ".join(f"{name}={value}" for name, value in self.settings.items())


def traced(setting: Mapping[str, Any]) -> dict[str, Any]:
    """In a worker: the record with every event, and the ledger as JSON."""
    from peakmem.ledger import Parameters
    from peakmem.trace import record, sharded
    from peakmem.trace.ledger import ledger_of
    from peakmem.trace.settings import profile
    from peakmem.trace.summary import summary

    gpu = profile(setting["gpu"])
    if setting.get("shard"):
        tracer, (total, trained), _ = sharded.traced(setting, record.model_of(setting), gpu)
    else:
        tracer, model, _ = record.traced(setting, gpu)
        total, trained = record.parameter_counts(model)
    ledger = ledger_of(tracer, {}, Parameters(total, trained, total), gpu=setting["gpu"]).as_json()
    found = summary(tracer, events=True)
    return {"record": {**setting, **found, "micro_batches": found["bytes"].get("micro_batches")}, "ledger": ledger}


def differences(point: Point, theirs: Mapping[str, Any]) -> tuple[int, str]:
    """Bytes off, and what is: by phase, by event, then whatever else the ledgers say otherwise."""
    structure, numbers = structure_of(point.model, point.setup)
    levels = dict(level_differences(theirs["record"], replay(program_of(structure), numbers)))
    unfolded, numbers = structure_of(point.model, point.setup, unfold=True)
    events = dict(event_differences(whole(theirs["record"]), blocks(events_of(interpret(unfolded), numbers))))
    others = dict(ledger_differences(point.estimate(), from_json(theirs["ledger"])))
    off = sum(abs(size) for size in (*levels.values(), *others.values())) + len(events)
    told = {**levels, **events, **others}
    return off, ", ".join(f"{name}: {size}" for name, size in told.items())


def blocks(events: Mapping[str, list[int]]) -> dict[str, list[int]]:
    """Events in the allocator's blocks of 512 bytes, as the total of tensors counts them."""
    return {phase: [-(-size // 512) * 512 if size > 0 else size // 512 * 512 for size in sizes]
            for phase, sizes in events.items()}


def whole(record: Mapping[str, Any]) -> dict[str, Any]:
    """A record with its events in such blocks."""
    return {**record, "events": [part | blocks({"bytes": part["bytes"]}) for part in record["events"]]}


def ledger_differences(ours: Ledger, theirs: Ledger) -> Iterator[tuple[str, int]]:
    """Phases, parameters, the chart, kinds, lines: bytes that are not the same."""
    yield from unequal("parameters", ours.parameters.total, theirs.parameters.total)
    for name, size in ours.phases.items():
        yield from unequal(name, size, theirs.phases.get(name, 0))
    yield from kind_differences(ours, theirs)
    for side, sign, lines in zip("AB", (1, -1), unmatched(ours, theirs), strict=True):
        for (name, kind), size in lines.items():
            yield f"{kind} {name} only in {side}", sign * size


def kind_differences(ours: Ledger, theirs: Ledger) -> Iterator[tuple[str, int]]:
    """All moments of the chart, their highest and what each is made of; kinds at the peak of the step."""
    there = {row.moment: row for row in theirs.chart}
    for row in ours.chart:
        other = there[row.moment]
        yield from unequal(f"{row.moment} end", row.end, other.end)
        yield from unequal(f"{row.moment} peak", row.peak, other.peak)
        for kind, size in row.by_kind.items():
            yield from unequal(f"{row.moment} {kind}", size, other.by_kind.get(kind, 0))
        for kind, size in row.peak_by_kind.items():
            yield from unequal(f"{row.moment} peak {kind}", size, other.peak_by_kind.get(kind, 0))
    for kind in ours.kinds.keys() | theirs.kinds.keys():
        most = [ledger.kinds[kind].largest if kind in ledger.kinds else 0 for ledger in (ours, theirs)]
        yield from unequal(f"{kind} at its most", *most)
    for kind, size in ours.by_kind().items():
        yield from unequal(f"{kind} at the peak", size, theirs.by_kind().get(kind, 0))


def unequal(name: str, mine: int, other: int) -> Iterator[tuple[str, int]]:
    """The difference, where there is one."""
    if mine != other:
        yield name, mine - other
