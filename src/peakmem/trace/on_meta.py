"""Where a user's tensors are made: on the meta device, also where the code says that it wants a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_cuda = torch.Tensor.cuda


class OnMeta(TorchFunctionMode):
    """Lets ``device="cuda"``, ``.to("cuda")`` and ``.cuda()`` mean the meta device while active."""

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function with the meta device in place of a GPU."""
        if func is _cuda:
            return args[0].to("meta")
        named = {name: _elsewhere(value) if name == "device" else value for name, value in (kwargs or {}).items()}
        if func is torch.Tensor.to:
            args = (args[0], *map(_elsewhere, args[1:]))
        return func(*args, **named)


def _elsewhere(value: Any) -> Any:
    """Return the meta device for a GPU (a number means one, too), and anything else as it is."""
    if type(value) is int:
        return torch.device("meta")
    if isinstance(value, str):
        return "meta" if value.partition(":")[0] == "cuda" else value
    return torch.device("meta") if isinstance(value, torch.device) and value.type == "cuda" else value
