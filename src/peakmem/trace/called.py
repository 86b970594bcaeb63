"""A user's module with its inputs, called as a step calls a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch


class Called(torch.nn.Module):
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
