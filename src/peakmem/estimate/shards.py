"""Parts of parameters on one GPU of FSDP2: their shapes, their sizes, and the order in which a unit has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from peakmem.errors import Impossible
from peakmem.estimate.layout import flat, size_key
from peakmem.estimate.tape import Key, Parameter


def padded(p: Parameter, dtype: str) -> Key:
    """The whole of a parameter as gathered from equal shards, the padding included."""
    assert p.shard is not None
    return size_key(dtype, (*flat(p.shard.dims), "w"))


def one_dtype(unit: str, trained: Mapping[str, str]) -> None:
    """Refuse a unit whose trained parameters, given with their dtypes, have several. Errors: Impossible.

    Source: torch 2.13, distributed/fsdp/_fully_shard/_fsdp_param_group.py, _init_mp_dtypes.
    """
    dtypes = [dtype for dtype, _ in Counter(trained.values()).most_common()]
    if len(dtypes) > 1:
        other = next(name for name, dtype in trained.items() if dtype == dtypes[-1])
        raise Impossible(f"--shard fsdp2: fully_shard takes trained parameters of one dtype in a unit, and {unit} has "
                         f"{' and '.join(dtypes)} ({other} is {dtypes[-1]}); give --precision mixed or fp32")


def path_of(p: Parameter) -> list[str]:
    """Modules from the outermost to the one that it is met in, and its own name."""
    return f"{p.within}.weight".split(".") if p.within else p.full_name.split(".")


def inner_first(parameters: list[Parameter]) -> list[Parameter]:
    """In the order of fully_shard: a module's parameters after those of the modules in it.

    Source: torch 2.13, distributed/fsdp/_fully_shard/_fsdp_init.py, _get_managed_modules.
    """
    places: dict[str, int] = {}  # of modules, as their definition begins
    for p in parameters:
        path = path_of(p)
        for depth in range(len(path)):
            places.setdefault(".".join(path[:depth]), len(places))

    def order(p: Parameter) -> tuple[float, ...]:
        path = path_of(p)[:-1]
        return (*(places[".".join(path[:depth])] for depth in range(1, len(path) + 1)), float("inf"))

    return sorted(parameters, key=order)
