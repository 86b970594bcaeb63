"""The training step that is traced: forward and backward of each micro-batch, optimizer, clearing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch

from .bits import states_of
from .process import report
from .tracer import Tracer, plain

__all__ = ["Step", "replace", "run"]


@dataclass(frozen=True)
class Step:
    """How one step is made.

    `autocast`: dtype of ``torch.autocast`` or None. `loss`: from the model's output to a scalar. `clip`: greatest
    gradient norm or None. `keep_output`: the model's output lives through the backward. `steps`: how many to run;
    records describe the last. `before`: called with the number of each micro-batch before it (to switch gradient
    synchronisation).
    """

    accumulation: int = 1
    autocast: torch.dtype | None = None
    loss: Callable[[Any], torch.Tensor] = lambda output: output.loss
    clip: float | None = None
    set_to_none: bool = True
    steps: int = 2
    keep_output: bool = False
    before: Callable[[int], None] = lambda micro_batch: None


def run(
    tracer: Tracer,
    model: torch.nn.Module,
    batch: Mapping[str, torch.Tensor],
    optimizer: torch.optim.Optimizer,
    step: Step,
    after: Callable[[], None] = lambda: None,
) -> None:
    """Track what exists, then run the steps under the tracer, calling `after` after each.

    Call it under ``FakeTensorMode`` and `gpu_answers`.
    """
    names = _names(model)
    tracer.enter("start")
    for parameter in model.parameters():
        name = names.get(id(parameter), "")
        tracer.track(parameter, "parameter", name.rpartition(".")[0], name)
        for part, tensor in states_of(parameter):
            tracer.track(tensor, "buffer", name.rpartition(".")[0], f"{name}/{part}")
    _track_buffers(tracer, model)
    for name, tensor in batch.items():
        if tensor.device.type != tracer.device:
            continue  # the grid of pictures, whose values are needed
        tracer.track(tensor, "input", name=f"input/{name}")
    _track_state(tracer, optimizer, names)
    with tracer:
        for number in range(step.steps):
            report(f"step {number + 1} of {step.steps}")
            _one(tracer, model, batch, optimizer, step)
            after()
        tracer.close()


def _one(
    tracer: Tracer,
    model: torch.nn.Module,
    batch: Mapping[str, torch.Tensor],
    optimizer: torch.optim.Optimizer,
    step: Step,
) -> None:
    device = tracer.device
    for i in range(step.accumulation):
        step.before(i)
        tracer.enter("forward", i)
        cast = nullcontext() if step.autocast is None else torch.autocast(device, step.autocast)
        with tracer.watching(model):
            with cast:
                output = model(**batch)
                loss = step.loss(output)
                if not step.keep_output:
                    del output
            if step.accumulation > 1:
                loss = loss / step.accumulation
        tracer.track(loss, "loss", name="loss")
        with tracer.watching(model):
            tracer.enter("backward", i)
            # In this thread: what FakeTensorMode says of new tensors is a setting of the thread, and a layer that is
            # run again may make some (indexing with a list does).
            with torch.autograd.set_multithreading_enabled(False):
                torch.autograd.backward(loss)
            del loss
            output = None
        names = _names(model)
        for parameter in model.parameters():
            if parameter.grad is not None:
                tracer.track(parameter.grad, "gradient", name=f"{names[id(parameter)]} gradient")
        _track_buffers(tracer, model)  # some modules make new ones in a forward
    if step.clip is not None:
        tracer.enter("clip")
        torch.nn.utils.clip_grad_norm_(model.parameters(), step.clip)
    tracer.enter("optimizer")
    optimizer.step()
    _track_state(tracer, optimizer, _names(model))
    tracer.enter("zero")
    optimizer.zero_grad(set_to_none=step.set_to_none)


def _names(model: torch.nn.Module) -> dict[int, str]:
    return {id(parameter): name for name, parameter in model.named_parameters()}


def _track_buffers(tracer: Tracer, model: torch.nn.Module) -> None:
    for path, module in model.named_modules():
        for name, buffer in module.named_buffers(recurse=False):
            tracer.track(buffer, "buffer", path, f"{path}.{name}" if path else name)
        # longrope keeps the table that its first forward makes in a plain attribute.
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor) and not value.requires_grad and value.device.type == tracer.device:
                tracer.track(value, "buffer", path, f"{path}.{name}" if path else name)


def _track_state(tracer: Tracer, optimizer: torch.optim.Optimizer, names: Mapping[int, str]) -> None:
    for parameter, state in optimizer.state.items():
        owner = names.get(id(parameter), "")
        for name, value in state.items():
            if isinstance(value, torch.Tensor) and plain(value).device.type == tracer.device:
                tracer.track(value, "optimizer_state", name=f"{owner}/{name}" if owner else name)
