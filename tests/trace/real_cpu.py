"""A real step on the CPU under torch's profiler, and the same step traced with fake CPU tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.profiler import ProfilerActivity, profile, record_function

from peakmem.trace import hf
from peakmem.trace.patches import gpu_answers
from peakmem.trace.step import Step, run
from peakmem.trace.tracer import Tracer


@dataclass(frozen=True)
class Phase:
    """Bytes above the phase's start: the most during it, and at its end."""

    name: str
    peak: int
    end: int


class RealClock:
    """Marks phases of a real run for the profiler, with the interface that `run` needs of a tracer."""

    device = "cpu"

    def __init__(self) -> None:
        self.names: list[str] = []
        self._open: Any = None

    def enter(self, name: str, micro_batch: int = 0) -> None:
        """Close the phase before and open this one."""
        if self._open is not None:
            self._open.__exit__(None, None, None)
        self.names.append(name)
        self._open = record_function(f"phase {len(self.names) - 1}")
        self._open.__enter__()

    def track(self, tensor: torch.Tensor, kind: str, module: str = "") -> None:
        """Do nothing: the profiler sees every allocation."""

    def watching(self, model: torch.nn.Module) -> Any:
        """Do nothing."""
        from contextlib import nullcontext

        return nullcontext()

    def __enter__(self) -> RealClock:
        return self

    def __exit__(self, *error: object) -> None:
        return None


def real(model: torch.nn.Module, batch: Mapping[str, torch.Tensor], optimizer: Any, step: Step) -> list[Phase]:
    """Run the steps with real kernels and return the phases of the last one."""
    clock = RealClock()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run(clock, model, batch, optimizer, step)  # type: ignore[arg-type]
        clock._open.__exit__(None, None, None)
    spans: dict[int, tuple[int, int]] = {}
    changes: list[tuple[int, int]] = []
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            changes.append((event.start_ns(), event.nbytes()))
        elif event.name().startswith("phase "):
            spans[int(event.name()[6:])] = (event.start_ns(), event.end_ns())
    changes.sort(key=lambda change: change[0])
    return [
        _phase(clock.names[i], [size for time, size in changes if spans[i][0] <= time <= spans[i][1]])
        for i in _last_step(clock.names)
    ]


def traced(model: torch.nn.Module, make: Callable[[], Any], optimizer: Callable[..., Any], step: Step) -> list[Phase]:
    """Trace the steps of a meta model with fake CPU tensors and return the phases of the last one."""
    with FakeTensorMode(allow_non_fake_inputs=True), gpu_answers(None):
        hf.move(model, "cpu")
        batch = make()
        tracer = Tracer("cpu")
        run(tracer, model, batch, optimizer(model), step)
    names = [name for name, _, _ in tracer.phases]
    return [
        _phase(names[i], [size for _, size in tracer.events[tracer.phases[i][2] : tracer.phases[i + 1][2]]])
        for i in _last_step(names)
    ]


def _last_step(names: list[str]) -> range:
    zeros = [i for i, name in enumerate(names) if name == "zero"]
    return range(zeros[-2] + 1, zeros[-1] + 1)


def _phase(name: str, changes: list[int]) -> Phase:
    levels = list(accumulate(changes, initial=0))
    return Phase(name, max(levels), levels[-1])
