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


def never() -> Any:
    """A function that does not return."""
    while True:
        pass


@torch.library.custom_op("peakmem_test::doubled", mutates_args=())
def doubled(x: Tensor) -> Tensor:
    """An operation with a kernel and no shape rule."""
    return x * 2


class Custom(nn.Module):
    """Calls an operation that torch does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Return a scalar."""
        return torch.ops.peakmem_test.doubled(self.inner(x)).sum()


def custom() -> Any:
    """A module with an operation of its own."""
    return Custom(), torch.empty(2, 4)


def lazy() -> Any:
    """Sizes that are known after a first call."""
    return nn.Sequential(nn.LazyLinear(8), nn.ReLU(), nn.LazyLinear(1)), torch.empty(2, 4), None, lambda y: y.sum()


def compiled() -> Any:
    """A module that would be compiled."""
    return torch.compile(nn.Linear(4, 1)), torch.empty(2, 4), None, lambda y: y.sum()


def broken() -> Any:
    """A mistake of the file's own."""
    return nn.Linear(4, 1), torch.empty(2, 5), None, lambda y: y.sum()


def talks() -> Any:
    """Prints, as scripts do."""
    print("hello from the file")
    return nn.Linear(4, 1), torch.empty(2, 4), None, lambda y: y.sum()


class Again(nn.Module):
    """Checkpointed layers, both modes."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        """Return a scalar."""
        x = x * 1.0
        for layer in self.layers:
            x = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=self.reentrant)
        return x.square().mean()


def reentrant() -> Any:
    """The older mode; it wants an input with a gradient."""
    return Again(True), torch.empty(512, 64, requires_grad=True)


def not_reentrant() -> Any:
    """The newer mode."""
    return Again(False), torch.empty(512, 64, requires_grad=True)


def stacked() -> Any:
    """Layers for FSDP2, no optimizer."""
    return Again(False), torch.empty(512, 64, requires_grad=True)
