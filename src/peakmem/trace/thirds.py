"""Where the nine moments of the chart end in a trace: thirds over the layers, in order of execution."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .tracer import Tracer

_NONE = r"(?!.*(?:merger|downsampling_layer|classifier))"
_LAYER = re.compile(rf"^(?:{_NONE}.*?\.stages\.\d+\.layers|{_NONE}.*?)\.(\d+)(?:\.|$)")
"""A module of a list, or of the list of a stage; mergers, heads and what joins two stages are numbered, too, and no
layers."""


def chart_ends(tracer: Tracer, first: int) -> Iterator[tuple[int, str]]:
    """Yield (index of the first event after the moment, its name) from F1 to step, of the last micro-batch."""
    phases = tracer.phases
    place = {name: i for i, (name, _, _) in enumerate(phases) if i >= first}
    forward, backward = place["forward"], place["backward"]
    spans = {i: (phases[i][2], phases[i + 1][2]) for i in (forward, backward)}
    layers = _layers(tracer, *spans[forward])
    count = len(layers)
    yield from _forward_cuts(tracer, spans[forward], layers, [count // 3, 2 * count // 3])
    yield spans[forward][1], "F3"
    yield from _backward_cuts(tracer, spans[backward], layers, [2 * count // 3, count // 3])
    yield spans[backward][1], "B1"
    yield phases[place["zero"]][2], "step"


def last_forward(tracer: Tracer) -> int:
    """Return the index of the first event of the last micro-batch's forward."""
    return next(start for name, _, start in reversed(tracer.phases) if name == "forward")


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


def _born(tracer: Tracer, span: tuple[int, int], layers: dict[str, int]) -> Iterator[tuple[int, int]]:
    """Yield (index, number of the layer or -1) of every birth of a phase."""
    for i in range(*span):
        block, change = tracer.events[i]
        if change > 0:
            yield i, layers.get(_layer(block.module), -1)


def _forward_cuts(
    tracer: Tracer, span: tuple[int, int], layers: dict[str, int], limits: list[int]
) -> Iterator[tuple[int, str]]:
    """Yield where the first layer of the next third begins."""
    waiting = list(zip(limits, ("F1", "F2")))
    for i, number in _born(tracer, span, layers):
        while waiting and number >= waiting[0][0]:
            yield i, waiting.pop(0)[1]
    for _, name in waiting:
        yield span[1], name


def _backward_cuts(
    tracer: Tracer, span: tuple[int, int], layers: dict[str, int], limits: list[int]
) -> Iterator[tuple[int, str]]:
    """Yield where the last layer of a third has ended: what comes next is of a layer before it, or of none."""
    waiting = list(zip(limits, ("B3", "B2")))
    lowest = len(layers)
    born = list(_born(tracer, span, layers))
    last = max((i for i, number in born if number >= 0), default=span[0])
    for i, number in born:
        while waiting:
            limit, name = waiting[0]
            # What has no module's name either may be a parameter's gradient that is copied, until all layers are done.
            none = number < 0 and lowest <= limit and (limit == 0 or tracer.events[i][0].module or i > last)
            if not none and not 0 <= number < limit:
                break
            yield i, name
            waiting.pop(0)
        lowest = min(lowest, number) if number >= 0 else lowest
    for _, name in waiting:
        yield span[1], name
