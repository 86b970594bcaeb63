"""The convolution networks of the examples, small: traced on the fake CPU, and run."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from real_cpu import real, traced, unlike

from peakmem.trace.step import Step

EXAMPLES = Path(__file__).parents[2] / "examples" / "trace"


def example(name: str) -> Any:
    """The module of one of the examples."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def residual(channels_last: bool) -> tuple[Callable[[], torch.nn.Module], Callable[[], dict[str, torch.Tensor]]]:
    """A ResNet of one block a stage, and its inputs."""

    def inputs() -> dict[str, torch.Tensor]:
        pixels = torch.zeros(2, 3, 64, 64)
        if channels_last:
            pixels = pixels.to(memory_format=torch.channels_last)
        return {"pixels": pixels, "classes": torch.zeros(2, dtype=torch.int64)}

    return partial(example("resnet").ResNet, (1, 1, 1, 1), 10), inputs


def levels() -> tuple[Callable[[], torch.nn.Module], Callable[[], dict[str, torch.Tensor]]]:
    """A U-Net of three levels, and its input."""
    return partial(example("unet").UNet, 3, 16, 3), lambda: {"x": torch.zeros(2, 3, 32, 32)}


NETWORKS = {"resnet": partial(residual, False), "resnet, channels last": partial(residual, True), "unet": levels}


def differences(name: str) -> list[tuple[str, int, int]]:
    """What differs between trace and run: (phase, peak, end), in bytes."""
    make, inputs = NETWORKS[name]()
    step = Step(loss=lambda output: output if output.dim() == 0 else output.square().mean())

    def optimizer(model: torch.nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    torch.backends.mkldnn.enabled = False
    with torch.device("meta"):
        meta = make()
    fake = traced(meta, inputs, optimizer, step)
    model = make()
    return unlike(fake, real(model, inputs(), optimizer(model), step))
