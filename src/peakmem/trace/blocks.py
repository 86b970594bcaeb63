"""One allocation of a trace, and how long it lives."""

from __future__ import annotations

import weakref

import torch

from .streams import current


class Block:
    """One storage: its size in bytes, where and on which stream it was born; `kind` and `name` may be set later."""

    __slots__ = tuple("bytes cast_of dtype kind module name op phase rerun saved shape stream".split())

    def __init__(self, size: int, op: str, module: str, phase: int, tensor: torch.Tensor | Block) -> None:
        self.bytes, self.op, self.module, self.phase = size, op, module, phase
        self.shape: tuple[int, ...] = tuple(tensor.shape)
        self.dtype: torch.dtype = tensor.dtype
        self.kind = self.name = ""
        self.saved = False
        self.rerun = False
        self.cast_of: Block | None = None
        self.stream = current().number


class Life(weakref.ref):  # type: ignore[type-arg]
    """A weak reference to a storage that knows its block."""

    __slots__ = ("block", "held", "key", "moved")
    block: Block
    key: int
    held: bool  # whether its bytes are allocated now
    moved: bool  # whether another storage stands for its block
