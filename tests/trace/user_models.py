"""Functions as a user would write them for `trace_function`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def perceptron() -> Any:
    """A module, a positional input, an optimizer made by the user, and a loss."""
    model = nn.Sequential(nn.Linear(100, 300), nn.ReLU(), nn.Linear(300, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, torch.empty(32, 100), optimizer, lambda output: output.square().mean()


def terabytes() -> Any:
    """A model that no machine holds."""
    model = nn.Sequential(nn.Linear(1_000_000, 1_000_000, bias=False), nn.Linear(1_000_000, 1, bias=False))
    return model, torch.empty(1, 1_000_000), None, lambda output: output.sum()


class Asks(nn.Module):
    """Branches on a value."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Return a scalar."""
        y = self.inner(x)
        return y.sum() if y.mean().item() > 0 else y.square().sum()


def asks() -> Any:
    """A module that asks for a value; its output is the loss."""
    return Asks(), (torch.empty(2, 4),)


class Selects(nn.Module):
    """Makes a tensor whose size depends on values."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Return a scalar."""
        y = self.inner(x)
        return y[y > 0].sum()


class Outer(nn.Module):
    """Holds the module that fails."""

    def __init__(self) -> None:
        super().__init__()
        self.picky = Selects()

    def forward(self, x: Tensor) -> Tensor:
        """Return a scalar."""
        return self.picky(x)


def selects() -> Any:
    """A module that a fake tensor can't follow."""
    return Outer(), torch.empty(2, 4)


class Shared(nn.Module):
    """One weight used twice, and a buffer that is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(1000, 64)
        self.head = nn.Linear(64, 1000, bias=False)
        self.head.weight = self.embedding.weight
        self.register_buffer("table", torch.empty(256, 64), persistent=False)

    def forward(self, ids: Tensor) -> dict[str, Tensor]:
        """Return a loss by name."""
        x = self.embedding(ids) + self.table[: ids.shape[1]]
        return {"loss": nn.functional.cross_entropy(self.head(x).flatten(0, 1), ids.flatten())}


def shared() -> Any:
    """A module with inputs by name."""
    return Shared(), {"ids": torch.empty(4, 16, dtype=torch.int64)}
