"""Events of a step of a hand-written module on the fake GPU, in the terms of tests/reference_steps.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from peakmem.estimate.interpret import interpret
from peakmem.estimate.replay import size, value
from peakmem.estimate.settings import structure_of
from peakmem.estimate.tape import Begin, End, Phase
from peakmem.readers.hf_config import from_config
from peakmem.setup import Setup
from peakmem.tables.kernels import GPU
from peakmem.trace import fake_gpu, hf, optimizers, step
from peakmem.trace.patches import gpu_answers
from peakmem.trace.settings import stored_of
from peakmem.trace.tracer import Tracer
from tests.reference_steps import grouped

DTYPES = {"bf16": (torch.bfloat16, None), "fp32": (torch.float32, None), "amp-bf16": (torch.float32, torch.bfloat16)}


def traced(config: Mapping[str, Any], setup: Setup, wrap: Callable[[Any], Any]) -> dict[str, list[int]]:
    """Allocations and frees by phase, of the second step. wrap: makes the module around transformers' model."""
    device = fake_gpu.set_up(fallback=False).device
    dtype, autocast = DTYPES[setup.precision]
    stored = stored_of(from_config(dict(config)), setup)
    dtype = autocast if autocast and (stored or setup.weights == "bf16") else dtype
    targets = {} if setup.lora_targets == ("all-linear",) else {"targets": list(setup.lora_targets)}
    lora = {"r": setup.lora_rank, "alpha": 2 * setup.lora_rank, "dropout": max(setup.lora_dropout, 0.0), **targets} \
        if setup.lora_rank else None
    attention = "sdpa" if setup.attention == "auto" else setup.attention
    built = hf.build(dict(config), "causal", dtype, attention, lora, setup.checkpoint == "full", stored=stored)
    module = wrap(built).train()
    with FakeTensorMode(allow_non_fake_inputs=True), gpu_answers(None if device == "cpu" else GPU()) as sdpa:
        hf.move(module, device)
        batch = hf.batch(module.config, "causal", dtype, setup.batch, setup.sequence, device)
        optimizer = optimizers.make(module, "AdamW", "foreach")
        tracer = Tracer(device, sdpa)
        step.run(tracer, module, batch, optimizer, step.Step(accumulation=setup.accumulation, autocast=autocast))
    events: dict[str, list[int]] = {}
    last = max(i for i, (name, _, _) in enumerate(tracer.phases) if name == "zero")
    first = max(i for i, (name, _, _) in enumerate(tracer.phases) if name == "zero" and i < last) + 1
    for (name, micro, start), (_, _, end) in zip(tracer.phases[first:], tracer.phases[first + 1 :], strict=False):
        if name in ("forward", "backward") and setup.accumulation > 1:
            name = f"{name}.{micro}"
        events[{"zero": "clear"}.get(name, name)] = grouped([change for _, change in tracer.events[start:end]])
    return events


def estimated(config: Mapping[str, Any], setup: Setup) -> dict[str, list[int]]:
    """The same from the estimate without scratch, layers unfolded and other repeated stretches written out."""
    structure, numbers = structure_of(from_config(dict(config)), setup, unfold=True)
    tape = interpret(structure)
    events: dict[str, list[int]] = {}
    stretch: list[int] = []
    phase, times = "", 1
    for event in [*tape.events, End()]:
        if isinstance(event, int):
            record = tape.records[event if event >= 0 else ~event]
            bytes_ = 0 if record.scratch else size(record.key, numbers)
            stretch.append(bytes_ if event >= 0 else -bytes_)
        elif isinstance(event, (Phase, Begin, End)):
            events.setdefault(phase, []).extend(stretch * max(times, 0))
            stretch.clear()
            times = value(event.times, numbers) if isinstance(event, Begin) else 1
            phase = event.name if isinstance(event, Phase) else phase
    return {name: grouped(changes) for name, changes in events.items()}
