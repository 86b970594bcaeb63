"""Where a user's tensors are made: on the meta device, also where the code says that it wants a GPU.

What the code asks of their values while the module is built is answered: a few small tensors (``torch.linspace`` of
dropout rates) have a twin on the CPU with their contents, others are told what `told` says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import WeakTensorKeyDictionary

from .failures import mark

LIMIT = 1 << 12  # elements of the largest tensor that has a twin
_COPIED = 1 << 20  # elements of the largest tensor without contents that may be copied to the CPU
_cuda = torch.Tensor.cuda
_aten = torch.ops.aten
_item = _aten._local_scalar_dense.default
ALIKE = frozenset((_aten.equal.default, _aten.allclose.default))  # what answers with a bool of Python's
_to_copy = _aten._to_copy.default
_FACTORIES = frozenset(
    getattr(packet, name)
    for packet in (_aten.arange, _aten.linspace, _aten.logspace, _aten.full, _aten.zeros, _aten.ones, _aten.eye,
                   _aten.randperm, _aten.scalar_tensor)
    for name in packet.overloads()  # type: ignore[no-untyped-call]
    if name != "out" and not name.endswith("_out")
)


def told(tensor: torch.Tensor) -> bool | int | float:
    """Return what code that asks a tensor without contents for its value is told."""
    # No value is right for every question; these choose "no padding, nothing packed" in transformers' masks and
    # keep the optimizers' bias corrections away from zero.
    return True if tensor.dtype == torch.bool else 0.5 if tensor.dtype.is_floating_point else 1


@contextmanager
def on_meta(asked: Callable[[object], None]) -> Iterator[None]:
    """Make tensors on the meta device while the context lasts; `asked` is called with each value that was made up."""
    known = _Known(asked)
    with known, torch.device("meta"), _OnMeta(known):
        yield


class _OnMeta(TorchFunctionMode):
    """Lets ``device="cuda"``, ``.to("cuda")`` and ``.cuda()`` mean the meta device while active."""

    def __init__(self, known: _Known) -> None:
        super().__init__()
        self.known = known

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the function with the meta device in place of a GPU."""
        if func is _cuda:
            return args[0].to("meta")
        named = {name: _elsewhere(value) if name == "device" else value for name, value in (kwargs or {}).items()}
        if func is torch.Tensor.to:
            args = (args[0], *map(_elsewhere, args[1:]))
        out = func(*args, **named)
        if func is torch.tensor and out.device.type == "meta" and out.numel() <= LIMIT:
            self.known.twins[out] = func(*args, **named | {"device": "cpu"}).detach()
        return out


class _Known(TorchDispatchMode):
    """Keeps the contents of small tensors that follow from the code alone, and answers for all."""

    def __init__(self, asked: Callable[[object], None]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.asked = asked
        self.twins: Any = WeakTensorKeyDictionary()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(kind is not torch.Tensor and hasattr(kind, "__tensor_flatten__") for kind in types):
            return NotImplemented  # a wrapper such as DTensor: its own rules ask again with plain tensors
        kwargs = kwargs or {}
        tensors = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        on_meta = any(tensor.device.type == "meta" for tensor in tensors)
        twins = [self._twin(tensor) for tensor in tensors] if on_meta and len(self.twins) else []
        known = bool(twins) and None not in twins
        if func is _item or func in ALIKE or func is _to_copy and str(kwargs.get("device")) == "cpu":
            if known:
                return self._on_cpu(func, args, kwargs)
            if on_meta and (func is not _to_copy or tensors[0].numel() <= _COPIED):
                return self._made_up(func, tensors[0], kwargs)
        try:
            out = func(*args, **kwargs)
        except Exception as error:
            mark(error, func.name())
            raise
        if known or func in _FACTORIES:
            self._follow(func, args, kwargs, out)
        elif on_meta and len(self.twins) and func._schema.is_mutable:
            self._forget(tensors)
        return out

    def _twin(self, tensor: torch.Tensor) -> torch.Tensor | None:
        found: torch.Tensor | None = tensor if tensor.device.type == "cpu" else self.twins.get(tensor)
        return found

    def _made_up(self, func: Any, tensor: torch.Tensor, kwargs: Any) -> Any:
        value = True if func in ALIKE else told(tensor)
        self.asked(value)
        if func is not _to_copy:
            return value
        return torch.full(tensor.shape, value, dtype=kwargs.get("dtype") or tensor.dtype, device="cpu")

    def _on_cpu(self, func: Any, args: Any, kwargs: Any) -> Any:
        args, kwargs = pytree.tree_map_only(torch.Tensor, self._twin, (args, dict(kwargs)))
        if "device" in kwargs:
            kwargs["device"] = torch.device("cpu")
        return func(*args, **kwargs)

    def _follow(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        made = [leaf for leaf in pytree.tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        chance = torch.Tag.nondeterministic_seeded in func.tags and func not in _FACTORIES
        if chance or any(tensor.numel() > LIMIT or tensor.device.type != "meta" for tensor in made):
            return self._forget([leaf for leaf in pytree.tree_leaves(args) if isinstance(leaf, torch.Tensor)]
                                if func._schema.is_mutable else [])
        try:
            twins = self._on_cpu(func, args, kwargs)
        except Exception:  # a kernel that the CPU lacks: the contents are then not known
            return None
        for tensor, twin in zip(made, (leaf for leaf in pytree.tree_leaves(twins) if isinstance(leaf, torch.Tensor))):
            self.twins[tensor] = twin
        return None

    def _forget(self, tensors: list[torch.Tensor]) -> None:
        written = {tensor.untyped_storage()._cdata for tensor in tensors if tensor.device.type == "meta"}
        for tensor in [each for each in self.twins if each.untyped_storage()._cdata in written]:
            del self.twins[tensor]


def _elsewhere(value: Any) -> Any:
    """Return the meta device for a GPU (a number means one, too), and anything else as it is."""
    if type(value) is int:
        return torch.device("meta")
    if isinstance(value, str):
        return "meta" if value.partition(":")[0] == "cuda" else value
    return torch.device("meta") if isinstance(value, torch.device) and value.type == "cuda" else value
