"""Functions of users' that ask for values while they build, or that fail."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class Rates(nn.Module):
    """Layers with dropout rates from a tensor, none where the rate is zero."""

    def __init__(self) -> None:
        super().__init__()
        rates = [rate.item() for rate in torch.linspace(0, 0.3, 7)]
        rates += (torch.arange(3)[1:] * torch.tensor([0.5, 0.25])).tolist()
        self.rates = rates
        self.layers = nn.ModuleList(nn.Dropout(rate) if rate else nn.Identity() for rate in rates)

    def forward(self, x: Tensor) -> Tensor:
        """Return a scalar."""
        for layer in self.layers:
            x = layer(x)
        return x.mean()


def rates() -> Any:
    """Values that follow from the code alone."""
    made = Rates()
    assert [round(rate, 6) for rate in made.rates] == [0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.5, 0.5]
    return made, torch.empty(8, 16, requires_grad=True), lambda _: torch.optim.SGD([torch.zeros(3)])


def overwritten() -> Any:
    """A value that no longer follows from the code: it is made up."""
    table = torch.zeros(5)
    row = table[2:]
    table.uniform_()
    assert row.max().item() == 0.5
    return nn.Linear(4, 1), torch.empty(2, 4), None, lambda y: y.sum()


def looks() -> Any:
    """Asks its random weights."""
    model = nn.Linear(6, 6)
    if model.weight.sum() > 0:
        nn.utils.parametrizations.orthogonal(model)
    assert not torch.equal(model.weight, model.weight) or model.weight.abs().max().item() == 0.5
    return model, torch.empty(2, 6), None, lambda y: y.sum()


class Asks(nn.Module):
    """Asks for three values, two of them alike."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return loss and output."""
        y = self.inner(x)
        if y.argmin().item() and (y < 3).all() and torch.allclose(y, y):
            y = y * y.std().item()
        return y.square().mean(), y


class Counts(torch.optim.SGD):
    """Looks at the gradients before it steps."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Step unless a gradient is too large."""
        if self.param_groups[0]["params"][0].grad.norm().item() < 9:
            super().step()


def all_ask() -> Any:
    """The module and the optimizers, two of these, ask."""
    model = nn.Sequential(Asks())
    return model, torch.empty(2, 4), (Counts([model[0].inner.weight]), torch.optim.Adam([model[0].inner.bias]))


class Outer(nn.Module):
    """Holds what fails."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.outer = nn.Sequential(nn.Linear(4, 7), inner)

    def forward(self, x: Tensor) -> Tensor:
        """Return a scalar."""
        return self.outer(x).sum()


class Raises(nn.Module):
    """Fails by itself."""

    def forward(self, x: Tensor) -> Tensor:
        """Raise."""
        raise KeyError("wrong\nand more \x1b[31m")


class Loops(nn.Module):
    """Never ends."""

    def forward(self, x: Tensor) -> Tensor:
        """Run for ever."""
        while True:
            x = x.detach().cos()


class Sparse(nn.Module):
    """Makes a sparse tensor."""

    def forward(self, x: Tensor) -> Tensor:
        """Return a sum."""
        return x.to_sparse().sum()


def fails_deep() -> Any:
    """A shape that does not fit."""
    return Outer(nn.Linear(8, 3)), torch.empty(2, 4)


def raises() -> Any:
    """An error of a forward."""
    return Outer(Raises()), torch.empty(2, 4)


def loops() -> Any:
    """A forward without end."""
    return Outer(Loops()), torch.empty(2, 4)


def sparse() -> Any:
    """A sparse tensor in a forward."""
    return Outer(Sparse()), torch.empty(2, 4)


def sparse_gradient() -> Any:
    """A sparse gradient."""
    return nn.Sequential(nn.Embedding(9, 4, sparse=True)), torch.zeros(3, dtype=torch.int64), None, lambda y: y.sum()


def sparse_input() -> Any:
    """A sparse input."""
    at = torch.tensor([[0], [1]], device="cpu")
    return Outer(nn.ReLU()), torch.sparse_coo_tensor(at, torch.ones(1, device="cpu"), (2, 4), device="cpu")


def nested() -> Any:
    """A nested input."""
    rows = [torch.ones(n, 4, device="cpu") for n in (2, 3)]
    return Outer(nn.ReLU()), torch.nested.nested_tensor(rows, layout=torch.jagged)


def no_scalar() -> Any:
    """A loss of many elements."""
    return nn.Linear(4, 3), torch.empty(2, 4), None, lambda y: y


def no_loss() -> Any:
    """A number in the loss's place."""
    return nn.Linear(4, 3), torch.empty(2, 4), None, 7


class Mute(Exception):
    """An error that cannot say what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def mute() -> Any:
    """Raises it."""
    raise Mute


def bye() -> Any:
    """Ends with words in colour."""
    raise SystemExit("bye \x1b[31m")


def child() -> Any:
    """Starts a process."""
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.zeros(64, 4, device="cpu"))
    return nn.Linear(4, 1), next(iter(DataLoader(data, batch_size=8, num_workers=1)))[0]


def loaded() -> Any:
    """A batch of a shuffled DataLoader in this process."""
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.zeros(64, 4, device="cpu"))
    batch, = next(iter(DataLoader(data, batch_size=8, shuffle=True)))
    return nn.Linear(4, 1), batch, None, lambda y: y.sum()


def again() -> Any:
    """An optimizer that calls the model again."""
    return nn.Linear(4, 1), torch.empty(2, 4), torch.optim.LBFGS, lambda y: y.sum()


def frozen() -> Any:
    """Nothing to train."""
    return nn.Linear(4, 1).requires_grad_(False), torch.empty(2, 4), torch.optim.SGD, lambda y: y.sum()


def no_optimizer() -> Any:
    """Something else in the optimizer's place."""
    return nn.Linear(4, 1), torch.empty(2, 4), 3, lambda y: y.sum()
