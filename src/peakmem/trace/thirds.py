"""Where the nine moments of the chart end in a trace: thirds over the layers, in order of execution."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .tracer import Tracer

_LAYER = re.compile(r"^(.*?)\.(\d+)(?:\.|$)")


def chart_ends(tracer: Tracer, first: int) -> Iterator[tuple[int, str]]:
    """Yield (index of the first event after the moment, its name) from F1 to step, of the last micro-batch."""
    phases = tracer.phases
    place = {name: i for i, (name, _, _) in enumerate(phases) if i >= first}
    forward, backward = place["forward"], place["backward"]
    spans = {i: (phases[i][2], phases[i + 1][2]) for i in (forward, backward)}
    layers = _layers(tracer, *spans[forward])
    count = len(layers)
    yield from _cuts(tracer, spans[forward], layers, [count // 3, 2 * count // 3], ("F1", "F2"), later=True)
    yield spans[forward][1], "F3"
    limits = [2 * count // 3, count // 3]
    yield from _cuts(tracer, spans[backward], layers, limits, ("B3", "B2"), later=False)
    yield spans[backward][1], "B1"
    yield phases[place["zero"]][2], "step"


def _layers(tracer: Tracer, start: int, end: int) -> dict[str, int]:
    """Return the number of each layer by its name, in the order in which the forward met them."""
    found: dict[str, int] = {}
    for block, change in tracer.events[start:end]:
        name = _layer(block.module)
        if change > 0 and name:
            found.setdefault(name, len(found))
    return found


def _layer(module: str) -> str:
    match = _LAYER.match(module)
    return match.group(0).rstrip(".") if match else ""


def _cuts(
    tracer: Tracer,
    span: tuple[int, int],
    layers: dict[str, int],
    limits: list[int],
    names: tuple[str, str],
    later: bool,
) -> Iterator[tuple[int, str]]:
    """Yield the cuts of one phase: where the first event of the next third's layers is."""
    waiting = list(zip(limits, names))
    for i in range(*span):
        block, change = tracer.events[i]
        number = layers.get(_layer(block.module), -1) if change > 0 else -1
        while waiting and number >= 0 and (number >= waiting[0][0] if later else number < waiting[0][0]):
            yield i, waiting.pop(0)[1]
        if not waiting:
            return
    for _, name in waiting:
        yield span[1], name
