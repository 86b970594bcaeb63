"""Pictures of any size: transformers asks how many patches each has, which a fake tensor can't tell.

A grid has values: it lies on the CPU, and what is computed from it is computed there. Tensors with an entry for each
patch then lie on the device as a real run has them there; how they are made on the way is left out.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._mode_utils import no_dispatch

PER_PATCH = ("get_vision_position_ids", "get_vision_interpolation_indices_and_weights")
"""Functions of transformers' vision_utils.py (5.24) that fill tensors on the device, an entry for each patch."""
OF_LENGTHS = ("get_vision_attention_seqlens", "get_vision_window_index")
"""Those whose results are asked for their values, or lie on the CPU."""


class Known(torch.Tensor):
    """A small tensor on the CPU whose values are known while others are fake."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with no_dispatch(), torch._C.DisableTorchFunctionSubclass():
            found = func(*args, **(kwargs or {}))
        return found.as_subclass(cls) if type(found) is torch.Tensor else found


class Sides(Known):
    """Height and width of every picture, which a model goes through one by one, as numbers."""

    rows: list[list[int]]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.rows)


def grid_of(rows: Sequence[Sequence[int]], merged: int) -> torch.Tensor:
    """Return the frames, rows and columns of patches of every picture; `merged` of them make one token."""
    _tokens[:], _tiles[:] = [sum(frames * height * width for frames, height, width in rows) // merged], []
    with no_dispatch():
        return torch.tensor(rows, dtype=torch.int64, device="cpu").as_subclass(Known)


def sides_of(sides: Sequence[int], pictures: int, tokens: int) -> torch.Tensor:
    """Return height and width of every picture, of which each takes so many tokens."""
    _tokens[:], _tiles[:] = [], [tokens] * pictures
    with no_dispatch():
        found = torch.tensor([list(sides)] * pictures, dtype=torch.int64, device="cpu").as_subclass(Sides)
    found.rows = [list(sides)] * pictures
    return found


def all_real(tiles: int, sequences: int) -> None:
    """Say that every sequence has so many tiles, of which none is padding."""
    _tokens[:], _tiles[:] = [tiles * sequences], [tiles] * sequences


@contextmanager
def answered(device: str) -> Iterator[None]:
    """Let transformers' models, those that are loaded, read grids and write where pictures are."""
    with ExitStack() as stack:
        for name, module in list(sys.modules.items()):
            if not name.startswith("transformers.models."):
                continue
            for function in (*PER_PATCH, *OF_LENGTHS):
                original = vars(module).get(function)
                if original is not None:
                    answer = _answer(original, device if function in PER_PATCH else "")
                    stack.enter_context(mock.patch.object(module, function, answer))
            for model in vars(module).values():
                if isinstance(model, type) and "get_rope_index" in vars(model):
                    stack.enter_context(mock.patch.object(model, "get_rope_index", _rope_index))
        stack.enter_context(mock.patch.object(FakeTensor, "nonzero", _nonzero, create=True))
        stack.enter_context(mock.patch.object(FakeTensor, "tolist", _tolist))
        stack.enter_context(mock.patch.object(torch, "as_tensor", _as_tensor))
        yield


def _answer(original: Callable[..., Any], device: str) -> Callable[..., Any]:
    """Return the function computed on values; with a device, its results lie there."""

    def answer(grid: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(grid, Known):
            return original(grid, *args, **kwargs)
        with no_dispatch(), torch._C.DisableTorchFunctionSubclass():
            found = original(grid.as_subclass(torch.Tensor), *args, **kwargs)
        if isinstance(found, tuple):
            return tuple(_placed(part, device) for part in found)
        return _placed(found, device)

    return answer


def _rope_index(model: Any, ids: torch.Tensor, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Return positions in time, height and width, and by how much text behind pictures is ahead."""
    return ids.new_empty(3, *ids.shape), ids.new_empty(ids.shape[0], 1)


def _placed(found: Any, device: str) -> Any:
    if not isinstance(found, torch.Tensor):
        return found
    if device:
        return torch.empty(found.shape, dtype=found.dtype, device=device)
    return found.as_subclass(Known) if found.dtype == torch.int32 else found


_tokens: list[int] = []
"""How many tokens stand for pictures in the batch that was made last, or how many tiles it has."""
_tiles: list[int] = []
"""How many tiles each sequence has, where a model asks that."""
_values = FakeTensor.tolist


def _tolist(tensor: Any) -> Any:
    """Return the tiles of each sequence, the only list that a model of tiles asks for."""
    return list(_tiles) if _tiles else _values(tensor)


_made = torch.as_tensor


def _as_tensor(data: Any, **kwargs: Any) -> torch.Tensor:
    """Return sides of pictures as a tensor on the device, which is all that becomes of them there."""
    if isinstance(data, Sides):
        return torch.empty(len(data.rows), 2, dtype=torch.int64, **kwargs)
    return _made(data, **kwargs)


def _nonzero(mask: torch.Tensor) -> torch.Tensor:
    """Return the places of a mask: those of the tokens that stand for pictures, the only mask that a model reads so."""
    if _tokens and mask.dtype == torch.bool:
        return mask.new_empty(_tokens[0], mask.dim(), dtype=torch.int64)
    found: torch.Tensor = torch.ops.aten.nonzero.default(mask)
    return found
