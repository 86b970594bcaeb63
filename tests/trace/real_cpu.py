"""A real step on the CPU under torch's profiler, and the same step traced with fake CPU tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.profiler import ProfilerActivity, profile, record_function

from peakmem.tables.kernels import GPU
from peakmem.trace import hf, record
from peakmem.trace.bits import without_values
from peakmem.trace.patches import gpu_answers
from peakmem.trace.step import Step, run
from peakmem.trace.tracer import Tracer

# Python numbers become tensors of up to 16 bytes in a real run and not in a fake one, or the other way round.
SCALAR = 16


@dataclass(frozen=True)
class Phase:
    """Bytes above the phase's start, scalars left out: the most during it, and at its end."""

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

    def close(self) -> None:
        """End the last phase."""
        self.enter("end")

    def track(self, tensor: torch.Tensor, kind: str, module: str = "", name: str = "") -> None:
        """Do nothing: the profiler sees every allocation."""

    def watching(self, model: torch.nn.Module) -> Any:
        """Do nothing."""
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


def traced(
    model: torch.nn.Module,
    batch: Callable[[], Mapping[str, torch.Tensor]],
    optimizer: Callable[[torch.nn.Module], Any],
    step: Step,
    device: str = "cpu",
) -> list[Phase]:
    """Trace the steps of a meta model with fake tensors and return the phases of the last one."""
    gpu = GPU() if device == "cuda" else None
    with FakeTensorMode(allow_non_fake_inputs=True), gpu_answers(gpu), without_values(True):
        hf.move(model, device)
        tracer = Tracer(device)
        run(tracer, model, batch(), optimizer(model), step)
    names = [name for name, _, _ in tracer.phases]
    return [
        _phase(names[i], [size for _, size in tracer.events[tracer.phases[i][2] : tracer.phases[i + 1][2]]])
        for i in _last_step(names)
    ]


def real_record(setting: Mapping[str, Any]) -> list[Phase]:
    """Run a record's setting for real."""
    model = _without_host_states(record.model_of(setting))
    hf.move(model, "cpu")
    _fill(model)
    batch = record.batch_of(setting, model, "cpu")
    for tensor in batch.values():
        if tensor.dtype == torch.int64:
            tensor.random_(3, 10)
        else:
            tensor.normal_()
    return real(model, batch, record.optimizer_of(setting, model), record.step_of(setting))


def traced_record(setting: Mapping[str, Any]) -> list[Phase]:
    """Trace a record's setting on the fake CPU."""
    model = _without_host_states(record.model_of(setting))
    return traced(
        model,
        lambda: record.batch_of(setting, model, "cpu"),
        partial(record.optimizer_of, setting),
        record.step_of(setting),
    )


def unlike(fake: list[Phase], real: list[Phase]) -> list[tuple[str, int, int]]:
    """Return (phase, fake - real peak, fake - real end) of each phase that differs, in bytes."""
    pairs = zip(fake, real, strict=True)
    return [(a.name, a.peak - b.peak, a.end - b.end) for a, b in pairs if a != b]


def differences(setting: Mapping[str, Any]) -> list[tuple[str, int, int]]:
    """Trace a record's setting on the fake CPU and for real, without oneDNN; return what `unlike` finds."""
    torch.backends.mkldnn.enabled = False
    return unlike(traced_record(setting), real_record(setting))


def _without_host_states(model: torch.nn.Module) -> torch.nn.Module:
    # Checkpointing keeps the host generator's state, 5056 bytes a layer; with a GPU that is not GPU memory.
    for module in model.modules():
        function = getattr(module, "_gradient_checkpointing_func", None)
        if function is not None:
            module._gradient_checkpointing_func = partial(function, preserve_rng_state=False)
    return model


def _fill(model: torch.nn.Module) -> None:
    for parameter in model.parameters():
        parameter.data.normal_(std=0.02)
    for name, buffer in model.named_buffers():
        buffer.zero_()
        if name.endswith("position_ids"):
            buffer.copy_(torch.arange(buffer.numel()).view(buffer.shape))


def _last_step(names: list[str]) -> range:
    zeros = [i for i, name in enumerate(names) if name == "zero"]
    return range(zeros[-2] + 1 if len(zeros) > 1 else 1, zeros[-1] + 1)


def _phase(name: str, changes: list[int]) -> Phase:
    levels = list(accumulate((size for size in changes if abs(size) > SCALAR), initial=0))
    return Phase(name, max(levels), levels[-1])
