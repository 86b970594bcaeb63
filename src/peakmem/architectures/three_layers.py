"""Three linear layers with ReLU: the network of the page's figures. W1 is (f, h), W2 (h, f), W3 (f, h).

The loss is the sum of the outputs, so that nothing but the layers keeps anything.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.definition import Definition, Layers, Row
from peakmem.estimate.losses import total
from peakmem.estimate.ops import activation
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor
from peakmem.estimate.weights import project
from peakmem.model import Model

MIRRORS = "torch 2.13 nn.Linear and nn.ReLU, three times"
INPUTS = {"input": ("b h", "")}
SHAPES = {"W1": "f h", "W2": "h f", "W3": "f h"}


def model(hidden: int = 1024) -> Model:
    """The network: every layer `hidden` wide, a kind of layer each, so that each is interpreted by itself."""
    return Model("three layers", "three_layers", layers=3, hidden=hidden, heads=1, kv_heads=1, head_size=hidden,
                 feed_forward=hidden, layer_kinds=tuple(SHAPES), source="the page's own figure")


def define(m: Structure) -> Definition:
    yield Layers("layers", rows)


def rows(kind: str) -> Iterator[Row]:
    yield Row(f"{kind}.weight", SHAPES[kind], "linear")


def forward(m: Structure, input: Tensor) -> Tensor:
    x = input
    del input
    for kind in m.layers("layers"):
        x = m.layer(layer, x, kind)
    return total(x)


def layer(m: Structure, x: Tensor, kind: str) -> Tensor:
    return activation(project(x, kind), "relu")
