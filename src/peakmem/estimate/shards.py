"""Parts of parameters on one GPU of FSDP2: their shapes, their sizes, and the order in which a unit has them."""

from __future__ import annotations

from peakmem.estimate.layout import flat, size_key
from peakmem.estimate.tape import Key, Parameter


def padded(p: Parameter, dtype: str) -> Key:
    """The whole of a parameter as gathered from equal shards, the padding included."""
    assert p.shard is not None
    return size_key(dtype, (*flat(p.shard.dims), "w"))


def inner_first(parameters: list[Parameter]) -> list[Parameter]:
    """In the order of fully_shard: a module's parameters after those of the modules in it.

    Source: torch 2.13, distributed/fsdp/_fully_shard/_fsdp_init.py, _get_managed_modules.
    """
    places: dict[str, int] = {}  # of modules, as their definition begins
    for p in parameters:
        path = p.full_name.split(".")
        for depth in range(len(path)):
            places.setdefault(".".join(path[:depth]), len(places))

    def order(p: Parameter) -> tuple[float, ...]:
        path = p.full_name.split(".")[:-1]
        return (*(places[".".join(path[:depth])] for depth in range(1, len(path) + 1)), float("inf"))

    return sorted(parameters, key=order)
