"""One operation twice: as a rule of ours, and as real PyTorch kernels on the CPU under the profiler."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from peakmem.estimate.autograd import backward
from peakmem.estimate.layout import dims
from peakmem.estimate.replay import size
from peakmem.estimate.tape import Parameter, Phase, Tape, Tensor, writing

NUMBERS = {"b": 4, "s": 6, "h": 48, "a": 4, "k": 2, "d": 16, "f": 80, "V": 211, "r": 8}
SCALARS = 64  # wrapped numbers and 0-d tensors are smaller, every tensor of a case is larger
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "int64": torch.int64, "bool": torch.bool}

Inputs = dict[str, tuple[str, str, bool]]  # name -> shape, dtype, whether it is trained


def shape_of(text: str) -> tuple[int, ...]:
    """The sizes of a shape in letters."""
    result = []
    for group in dims(text):
        count = 1
        for letter in group:
            count *= NUMBERS[letter.rstrip("'")]
        result.append(count)
    return tuple(result)


def steps(changes: list[int], scratch: int = 0) -> list[int]:
    """Each allocation, and the sum of the frees between two; scalars and a kernel's own scratch left out."""
    result: list[int] = []
    freed = 0
    for change in changes:
        if abs(change) <= SCALARS or abs(change) == scratch:
            continue
        if change < 0:
            freed += change
            continue
        if freed:
            result.append(freed)
            freed = 0
        result.append(change)
    return [*result, freed] if freed else result


def predicted(inputs: Inputs, run: Callable[..., Tensor], ones: frozenset[str] = frozenset()) -> list[list[int]]:
    """Allocations and frees of forward and backward by our rules."""
    tape = Tape(ones)
    with writing(tape):
        tape.phase("start")
        given: dict[str, Tensor] = {}
        for name, (text, dtype, trained) in inputs.items():
            made = tape.new(dims(text), dtype, None, name)
            if trained:
                given[name] = Parameter(dims(text), dtype, made.storage, name, True, "")  # type: ignore[arg-type]
                tape.parameters[name] = given[name]  # type: ignore[assignment]
            else:
                given[name] = made
        del made
        tape.phase("forward")
        result = run(**given)
        tape.phase("backward")
        backward(tape, result)
        tape.finish()
    found: dict[str, list[int]] = {}
    for event in tape.events:
        if isinstance(event, Phase):
            changes = found.setdefault(event.name, [])
        elif isinstance(event, int):
            record = tape.records[event if event >= 0 else ~event]
            if not record.scratch:
                changes.append(int(size(record.key, NUMBERS)) * (1 if event >= 0 else -1))
    return [steps(found["forward"]), steps(found["backward"])]


def measured(inputs: Inputs, run: Callable[..., torch.Tensor], scratch: int = 0) -> list[list[int]]:
    """The same of real kernels. scratch: bytes that this CPU kernel alone takes inside itself."""
    given: dict[str, Any] = {}
    for name, (text, dtype, trained) in inputs.items():
        sizes = shape_of(text)
        if dtype == "int64":
            given[name] = torch.randint(0, min(NUMBERS["V"], 100), sizes)
        elif dtype == "bool":
            given[name] = torch.ones(sizes, dtype=torch.bool)
        else:
            given[name] = torch.randn(sizes).to(DTYPES[dtype]).requires_grad_(trained)
    torch.manual_seed(0)
    with torch.backends.mkldnn.flags(enabled=False), profile(
            activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        with record_function("span forward"):
            result = run(**given)
        with record_function("span backward"):
            result.backward(torch.ones_like(result, memory_format=torch.contiguous_format))
    spans: dict[str, tuple[int, int]] = {}
    changes: list[tuple[int, int]] = []
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            changes.append((event.start_ns(), event.nbytes()))
        elif event.name().startswith("span "):
            spans[event.name()[5:]] = event.start_ns(), event.end_ns()
    changes.sort(key=lambda change: change[0])
    return [steps([size for time, size in changes if spans[name][0] <= time <= spans[name][1]], scratch)
            for name in ("forward", "backward")]


