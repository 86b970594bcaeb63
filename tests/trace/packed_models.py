"""Functions as a user of bitsandbytes would write them."""

from __future__ import annotations

from typing import Any

import bitsandbytes as bnb
import torch
from torch import nn


def made(layer: nn.Module, optimizer: Any = None) -> Any:
    """A layer and a small head, with a loss."""
    model = nn.Sequential(layer, nn.ReLU(), nn.Linear(512, 8, bias=False))
    return model, torch.empty(16, 256), optimizer and optimizer(model.parameters()), lambda y: y.square().mean()


def four_bits() -> Any:
    """A frozen packed layer; the head is trained."""
    return made(bnb.nn.Linear4bit(256, 512, bias=False, quant_type="nf4", compress_statistics=False))


def eight_bits() -> Any:
    """A layer of LLM.int8."""
    return made(bnb.nn.Linear8bitLt(256, 512, bias=False))


def adam() -> Any:
    """Two states."""
    return made(nn.Linear(256, 512, bias=False), bnb.optim.Adam8bit)


def lion() -> Any:
    """One state."""
    return made(nn.Linear(256, 512, bias=False), bnb.optim.Lion8bit)


def paged_lion() -> Any:
    """One state in managed memory."""
    return made(nn.Linear(256, 512, bias=False), bnb.optim.PagedLion8bit)
