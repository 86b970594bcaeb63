"""Tracing what a user's own file makes: a module, its inputs, and if wanted an optimizer and a loss.

The file is run: trace only code you trust. Its function is called with ``meta`` as torch's device, so that a model of
any size costs nothing; what it returns is then moved to the fake GPU.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from peakmem.errors import PeakmemError, Unreadable, printable
from peakmem.ledger import Ledger, Parameters
from peakmem.ledger_json import from_json
from peakmem.tables.kernels import GPU

from . import fake_gpu, hf
from .ledger import ledger_of
from .patches import gpu_answers
from .process import in_process
from .record import parameter_counts
from .step import Step, run
from .tracer import Tracer


@dataclass(frozen=True)
class Training:
    """What a user's function may return instead of a tuple.

    `inputs`: positional (a tensor or tuple) or by name (a mapping). `optimizer`: an optimizer over the module's
    parameters, a function of these parameters, or None for AdamW. `loss`: from the module's output to a scalar; None
    takes its ``.loss``, ``["loss"]``, or the output itself if it is a scalar.
    """

    module: torch.nn.Module
    inputs: Any
    optimizer: Any = None
    loss: Callable[[Any], torch.Tensor] | None = None


def trace_function(place: str, gpu: GPU | None = None, **step: Any) -> Ledger:
    """Return the ledger of the step that ``FILE.py:FUNCTION`` describes; `step` holds fields of `Step`.

    The function returns (module, inputs[, optimizer[, loss]]) or a `Training`. Runs in a process of its own. Raises
    `Unreadable` for a file or function that is not there, `TraceError` where a step can't be followed.
    """
    file, _, name = place.rpartition(":")
    if not file or not name.isidentifier():
        raise PeakmemError(f"{printable(place)}: write FILE.py:FUNCTION")
    if not Path(file).is_file():
        raise Unreadable(f"{printable(file)}: no such file")
    return from_json(in_process(_as_json, file, name, gpu, step))


def _as_json(file: str, name: str, gpu: GPU | None, step: Mapping[str, Any]) -> dict[str, Any]:
    fake = fake_gpu.set_up()
    function = _function(Path(file), name)
    with torch.device("meta"):
        made = function()
    training = made if isinstance(made, Training) else Training(*made)
    plan = Step(**{"loss": training.loss or scalar_of, **step})
    with FakeTensorMode(allow_non_fake_inputs=True), gpu_answers(gpu or GPU()) as sdpa:
        moved = hf.move(training.module, fake.device)
        inputs = pytree.tree_map_only(torch.Tensor, lambda t: _fresh(t, fake.device), training.inputs)
        tracer = Tracer(fake.device, sdpa)
        optimizer = _optimizer(training, moved)
        run(tracer, _Called(training.module, inputs), _tensors(inputs), optimizer, plan)
    total, trained = parameter_counts(training.module)
    run_settings = {
        "versions": {"torch": torch.__version__},
        "file": f"{Path(file).name}:{name}",
        "gpu": (gpu or GPU()).name,
    }
    return ledger_of(tracer, run_settings, Parameters(total, trained, total)).as_json(timeline=True)


def _function(path: Path, name: str) -> Callable[[], Any]:
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise Unreadable(f"{printable(str(path))}: has no function {name}")
    return function  # type: ignore[no-any-return]


def _fresh(tensor: torch.Tensor, device: str) -> torch.Tensor:
    new = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
    return new.requires_grad_(tensor.requires_grad)


def _optimizer(training: Training, moved: Mapping[int, torch.Tensor]) -> Any:
    trained = [p for p in training.module.parameters() if p.requires_grad]
    if training.optimizer is None:
        return torch.optim.AdamW(trained)
    if not hasattr(training.optimizer, "param_groups"):
        return training.optimizer(trained)
    for group in training.optimizer.param_groups:
        group["params"] = [moved.get(id(p), p) for p in group["params"]]
    return training.optimizer


def _tensors(inputs: Any) -> dict[str, torch.Tensor]:
    leaves = pytree.tree_leaves(inputs)
    return {str(i): leaf for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)}


class _Called(torch.nn.Module):
    """The user's module called with its inputs, whatever their form; its own name in paths is empty."""

    def __init__(self, module: torch.nn.Module, inputs: Any) -> None:
        super().__init__()
        self._module = [module]  # not a submodule, so that names stay the user's
        self.inputs = inputs

    def forward(self, **tensors: torch.Tensor) -> Any:
        """Return the module's output; the tensors are those of `inputs`."""
        module = self._module[0]
        if isinstance(self.inputs, Mapping):
            return module(**self.inputs)
        return module(*self.inputs) if isinstance(self.inputs, (tuple, list)) else module(self.inputs)

    def named_modules(self, *args: Any, **kwargs: Any) -> Any:
        """Return those of the user's module."""
        return self._module[0].named_modules(*args, **kwargs)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
        """Return those of the user's module."""
        return self._module[0].named_parameters(*args, **kwargs)

    def parameters(self, recurse: bool = True) -> Any:
        """Return those of the user's module."""
        return self._module[0].parameters(recurse)

    def named_buffers(self, *args: Any, **kwargs: Any) -> Any:
        """Return those of the user's module."""
        return self._module[0].named_buffers(*args, **kwargs)


def scalar_of(output: Any) -> torch.Tensor:
    """Return the loss in a module's output: ``.loss``, ``["loss"]``, or the output itself if it has one element.

    Raises `PeakmemError` if there is none.
    """
    if isinstance(output, Mapping) and "loss" in output:
        output = output["loss"]
    output = getattr(output, "loss", output)
    if isinstance(output, torch.Tensor) and output.numel() == 1:
        return output
    raise PeakmemError("the module's output holds no loss: return a fourth value, a function from output to scalar")
