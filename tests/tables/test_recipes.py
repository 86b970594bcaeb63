"""Precisions and optimizers: the sums that people quote, and rows that agree with torch.optim."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

from peakmem.errors import UnknownName
from peakmem.setup import FIELDS
from peakmem.tables.optimizers import OPTIMIZERS, Optimizer, find_optimizer
from peakmem.tables.precisions import PRECISIONS, WIDTH, Precision, find_precision

QUOTED = {
    "mixed": "16",
    "amp-bf16": "16 + up to 2",
    "amp-fp16": "16 + up to 2",
    "bf16": "8",
    "fp16": "8",
    "fp32": "16",
    "megatron": "18",
}


def test_the_recipes_are_the_choices_of_the_setting() -> None:
    assert set(PRECISIONS) == set(FIELDS["precision"]["choices"]) == set(QUOTED)


@pytest.mark.parametrize("row", PRECISIONS.values(), ids=lambda r: r.name)
def test_bytes_per_parameter(row: Precision) -> None:
    assert row.total() == QUOTED[row.name]
    assert row.source and row.title
    for dtype in (row.weights, row.autocast, row.gradients, row.gradient_buffer, row.master, row.states):
        assert dtype is None or dtype in WIDTH
    assert not (row.autocast and row.weights != "fp32")


def test_unknown_recipes() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'bf16'"):
        find_precision("bf-16")


@pytest.mark.parametrize("row", OPTIMIZERS.values(), ids=lambda r: r.name)
def test_optimizer_rows(row: Optimizer) -> None:
    assert row.source and row.temporaries
    assert set(row.temporaries) <= {"foreach", "fused", "loop"}
    assert row.layout in ("full", "8bit blocks 256", "4bit blocks 128", "rows+columns")
    assert row.states in (len(row.state_names), 1)
    for name in (row.name, *row.aliases, row.name.upper().replace("-", "_")):
        assert find_optimizer(name) is row
    for words, count in row.temporaries.values():
        assert words in ("none", "group", "tensor", "own") and (count > 0) == (words in ("group", "tensor"))


def test_unknown_optimizers() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'adamw'"):
        find_optimizer("adam_ww")


TORCH = {
    "sgd": ("SGD", {"lr": 0.1}),
    "momentum": ("SGD", {"lr": 0.1, "momentum": 0.9}),
    "adam": ("Adam", {}),
    "adamw": ("AdamW", {}),
    "amsgrad": ("AdamW", {"amsgrad": True}),
    "rmsprop": ("RMSprop", {}),
    "adagrad": ("Adagrad", {}),
    "nadam": ("NAdam", {}),
    "nesterov": ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "adadelta": ("Adadelta", {}),
    "adamax": ("Adamax", {}),
}


@pytest.mark.parametrize(("name", "way"), [(name, way) for name in TORCH for way in OPTIMIZERS[name].temporaries])
def test_states_and_temporaries_are_those_of_torch(name: str, way: str) -> None:
    row, (cls, options) = OPTIMIZERS[name], TORCH[name]
    torch = pytest.importorskip("torch")
    count, shape = 3, (64, 64)
    parameters = [torch.nn.Parameter(torch.randn(shape)) for _ in range(count)]
    for parameter in parameters:
        parameter.grad = torch.randn(shape)
    flags = {"fused": True} if way == "fused" else {"foreach": way == "foreach"}
    optimizer = getattr(torch.optim, cls)(parameters, **options, **flags)
    optimizer.step()
    states = [t for t in optimizer.state[parameters[0]].values() if isinstance(t, torch.Tensor) and t.numel() > 1]
    assert len(states) == row.states
    assert (
        tuple(k for k, t in optimizer.state[parameters[0]].items() if isinstance(t, torch.Tensor) and t.numel() > 1)
        == row.state_names
    )
    words, copies = row.temporaries[way]
    assert most_temporaries(torch, optimizer, parameters) == copies * {"group": count, "tensor": 1, "none": 0}[words]


def most_temporaries(torch: Any, optimizer: Any, parameters: list[Any]) -> float:
    """Most tensors, in sizes of one parameter, that a step has beside parameters, gradients and states."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    size = parameters[0].untyped_storage().nbytes()
    old = {
        t.untyped_storage().data_ptr()
        for p in parameters
        for t in (p, p.grad, *optimizer.state[p].values())
        if isinstance(t, torch.Tensor)
    }

    class Watch(TorchDispatchMode):  # type: ignore[misc]
        live: dict[int, Any] = {}
        most = 0.0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            for tensor in tree_leaves(out):
                if isinstance(tensor, torch.Tensor) and tensor.untyped_storage().data_ptr() not in old:
                    self.live[tensor.untyped_storage().data_ptr()] = (weakref.ref(tensor), tensor.nbytes)
            self.live = {k: v for k, v in self.live.items() if v[0]() is not None}
            self.most = max(self.most, sum(n for _, n in self.live.values() if n >= size) / size)
            return out

    with Watch() as watch:
        optimizer.step()
    return watch.most
