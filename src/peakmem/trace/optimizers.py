"""Optimizers by name, as a training script would make them: torch's own, and plain versions of those it lacks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from peakmem.errors import PeakmemError, printable

from . import bits
from .master import OverMaster
from .settings import STATES

_IMPLEMENTATIONS: dict[str, dict[str, bool]] = {
    "foreach": {"foreach": True},
    "fused": {"fused": True},
    "loop": {"foreach": False},
    "auto": {},
}


class Lion(torch.optim.Optimizer):
    """Lion as packages write it: a loop, one momentum, sign of an interpolation (Chen et al., arXiv 2302.06675).

    fused: lion-pytorch's Triton kernel, of which only that it makes nothing on the way is kept.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        fused: bool = False,
    ) -> None:
        self.fused = fused
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._update(parameter, group)

    def _update(self, parameter: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["exp_avg"] = torch.zeros_like(parameter)
        momentum, gradient = state["exp_avg"], parameter.grad
        first, second = group["betas"]
        parameter.mul_(1 - group["lr"] * group["weight_decay"])
        if self.fused:
            momentum.add_(gradient)
            parameter.add_(momentum)
            return
        update = momentum.clone().mul_(first).add(gradient, alpha=1 - first).sign_()
        parameter.add_(update, alpha=-group["lr"])
        momentum.mul_(second).add_(gradient, alpha=1 - second)


class Together:
    """Several optimizers stepped in turn, with the interface that a step needs of one."""

    def __init__(self, *optimizers: torch.optim.Optimizer) -> None:
        self.optimizers = optimizers

    @property
    def state(self) -> dict[Tensor, Any]:
        """The states of all, by parameter."""
        return {parameter: state for each in self.optimizers for parameter, state in each.state.items()}

    def step(self) -> None:
        """Step each."""
        for each in self.optimizers:
            each.step()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients of each."""
        for each in self.optimizers:
            each.zero_grad(set_to_none=set_to_none)


def outer(model: torch.nn.Module) -> set[int]:
    """The ids of embeddings and of the head's weight, which Muon's authors leave to AdamW."""
    head = getattr(model, "get_output_embeddings", lambda: None)() or getattr(model, "classifier", None)
    ends = [m for m in model.modules() if isinstance(m, torch.nn.Embedding) or m is head]
    return {id(p) for m in ends for p in m.parameters(recurse=False)}


def _muon(trained: list[Tensor], ends: Container[int] = (), **options: Any) -> Together:
    matrices = [p for p in trained if p.dim() == 2 and id(p) not in ends]
    rest = [p for p in trained if p.dim() != 2 or id(p) in ends]
    muon = [torch.optim.Muon(matrices)] if matrices else []
    return Together(*muon, torch.optim.AdamW(rest, **options)) if rest else Together(*muon)


OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "AdamW": torch.optim.AdamW,
    "Adam": torch.optim.Adam,
    "Adam-decay": lambda p, **o: torch.optim.Adam(p, weight_decay=0.01, **o),
    "Adam-amsgrad": lambda p, **o: torch.optim.Adam(p, amsgrad=True, **o),
    "AdamW-amsgrad": lambda p, **o: torch.optim.AdamW(p, amsgrad=True, **o),
    "SGD": lambda p, **o: torch.optim.SGD(p, lr=0.1, **o),
    "SGD-momentum": lambda p, **o: torch.optim.SGD(p, lr=0.1, momentum=0.9, **o),
    "SGD-nesterov": lambda p, **o: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, **o),
    "SGD-momentum-decay": lambda p, **o: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, **o),
    "RMSprop": torch.optim.RMSprop,
    "Adagrad": torch.optim.Adagrad,
    "Adadelta": torch.optim.Adadelta,
    "Adamax": torch.optim.Adamax,
    "NAdam": torch.optim.NAdam,
    "RAdam": torch.optim.RAdam,
    "Adafactor": torch.optim.Adafactor,
    "Lion": lambda p, **o: Lion(p, fused=o.get("fused", False)),
    "Muon": _muon,
    "AdamW-8bit": lambda p, **o: bits.needed().optim.AdamW8bit(p),
}


def make(model: torch.nn.Module, name: str = "AdamW", implementation: str = "foreach") -> Any:
    """Return the optimizer over the model's trained parameters, learning settings at their defaults.

    `implementation`: ``foreach``, ``fused`` or ``loop``, torch's three, or ``auto``, its own choice. Raises
    `ValueError` for an unknown name and whatever torch raises for an implementation it lacks.
    """
    if name not in OPTIMIZERS or implementation not in _IMPLEMENTATIONS:
        known = f"{', '.join(OPTIMIZERS)}; implementations {', '.join(_IMPLEMENTATIONS)}"
        raise ValueError(f"no optimizer {name!r} ({implementation}); there are {known}")
    trained = [p for p in model.parameters() if p.requires_grad]
    options: dict[str, Any] = dict(_IMPLEMENTATIONS[implementation])
    if name == "Muon":
        options["ends"] = outer(model)
    return OPTIMIZERS[name](trained, **options)


def over_master(model: torch.nn.Module, name: str = "AdamW") -> OverMaster:
    """Return the fused optimizer over fp32 master weights. Raises `ValueError` for a name that is not in `STATES`."""
    if name not in STATES:
        raise ValueError(f"no optimizer {name!r} over master weights; there are {', '.join(STATES)}")
    return OverMaster((p for p in model.parameters() if p.requires_grad), STATES[name])


def of_user(given: Any, trained: Sequence[Tensor], moved: Mapping[int, Tensor]) -> Any:
    """Return what a user's function gave, an optimizer, several, or a function of `trained`, over what was `moved`.

    Raises `PeakmemError` for something else, for no parameters, and for one whose step calls the model again.
    """
    if isinstance(given, (tuple, list)) and given:
        return Together(*(of_user(each, trained, moved) for each in given))
    if not hasattr(given, "param_groups"):
        if not callable(given):
            raise PeakmemError(f"the third value must be an optimizer, several in a tuple, or a function of the "
                               f"parameters, not {printable(type(given).__name__)}")
        try:
            given = given(trained)
        except ValueError:
            if trained:
                raise
            raise PeakmemError("the module has no parameter that is trained (requires_grad): nothing for an "
                               "optimizer") from None
    closure = inspect.signature(given.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise PeakmemError(f"{printable(type(given).__name__)}: its step calls the model again, as often as values "
                           "decide; a trace knows optimizers whose step() needs no closure")
    for group in getattr(given, "param_groups", ()):
        group["params"] = [moved.get(id(p), p) for p in group["params"]]
    return given
