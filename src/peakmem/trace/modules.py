"""Which module is at work: by hooks while a forward runs, by sequence numbers in a backward."""

from __future__ import annotations

import sys
import threading
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from .failures import mark

_current_node = torch._C._current_autograd_node
_sequence = torch._C._autograd._get_sequence_nr
_NO_SEQUENCE = 1 << 63


class Modules:
    """Follows the forwards of a model's modules, and remembers which autograd nodes each has made."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._where = threading.local()
        self._main = threading.get_ident()
        self._marks: list[int] = [0]
        self._mark_names: list[str] = [""]

    @property
    def running(self) -> bool:
        """Whether some module's forward runs on this thread; in a backward, a checkpointed layer's second run."""
        return bool(getattr(self._where, "stack", None))

    def at_work(self, backward: bool) -> str:
        """Return the module whose forward runs, or in a backward the one whose forward made the node."""
        stack = getattr(self._where, "stack", None)
        if stack:
            return str(stack[-1])
        if backward:
            node = _current_node()
            if node is not None:
                number = node._sequence_nr()
                if number < _NO_SEQUENCE:
                    return self._mark_names[bisect_right(self._marks, number) - 1]
        return ""

    @contextmanager
    def followed(self, model: torch.nn.Module) -> Iterator[None]:
        """Follow the forwards of `model`'s modules while the context lasts."""
        self._names = {id(module): name for name, module in model.named_modules()}
        hooks = torch.nn.modules.module
        before = hooks.register_module_forward_pre_hook(self._enter)
        after = hooks.register_module_forward_hook(self._leave, always_call=True)
        try:
            yield
        finally:
            before.remove()
            after.remove()

    def _enter(self, module: torch.nn.Module, inputs: object) -> None:
        stack = self._where.__dict__.setdefault("stack", [])
        name = self._names.get(id(module), stack[-1] if stack else "")
        stack.append(name)
        self._mark(name)

    def _leave(self, module: torch.nn.Module, inputs: object, output: object) -> None:
        stack = self._where.stack
        if stack:
            error = sys.exc_info()[1]
            if error is not None:  # the hook is called on the way out of a forward that failed
                mark(error, module=stack[-1])
            stack.pop()
        self._mark(stack[-1] if stack else "")

    def _mark(self, name: str) -> None:
        # Sequence numbers count per thread; only nodes made on the main thread are looked up by them.
        if threading.get_ident() == self._main:
            self._marks.append(_sequence())
            self._mark_names.append(name)
