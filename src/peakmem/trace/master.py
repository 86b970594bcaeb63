"""Optimizers over fp32 master weights that update in one fused pass, as Apex's and DeepSpeed's FusedAdam do.

A stand-in with the same bytes: the update is one kernel that makes no tensor, so only what it keeps is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor


class OverMaster(torch.optim.Optimizer):
    """One fused pass over master weights and states in fp32; gradients are read as they are."""

    def __init__(self, params: Iterable[Tensor], names: tuple[str, ...]) -> None:
        super().__init__(params, {})
        self.names = names
        for parameter in self._all():
            if parameter.dtype != torch.float32:
                self.state[parameter]["master"] = torch.empty_like(parameter, dtype=torch.float32)

    def _all(self) -> list[Tensor]:
        return [parameter for group in self.param_groups for parameter in group["params"]]

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Make the states of parameters that have a gradient and none yet; the update itself makes nothing."""
        for parameter in self._all():
            if parameter.grad is None:
                continue
            state = self.state[parameter]
            for name in self.names:
                if name not in state:
                    state[name] = torch.empty_like(parameter, dtype=torch.float32)
