"""Counts over all parameters, for what is cut from them as a whole: `trained`, `partition`, `largest`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from peakmem.estimate.layout import flat
from peakmem.estimate.replay import product, value
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tape, writing

Rows = tuple[tuple[tuple[str, ...], str], ...]


def counted(m: Structure, numbers: Mapping[str, Any]) -> dict[str, Any]:
    """trained: how many elements are trained; partition: how many of them lie on one GPU, each parameter's part
    rounded up; largest: of the largest trained parameter."""
    trained = partition = largest = 0
    for letters, fold in rows(m):
        count = product(1, letters, numbers)
        times = value(fold, numbers) if fold else 1
        trained = trained + count * times
        partition = partition + -(-count // numbers["w"]) * times
        exists = times > 0
        largest = largest + (count - largest) * ((count > largest) * exists)
    return {"trained": trained, "partition": partition, "largest": largest}


@lru_cache(maxsize=64)
def rows(m: Structure) -> Rows:
    """Letters and fold of every trained parameter."""
    from peakmem.architectures import code_of
    from peakmem.estimate.parameters import define
    from peakmem.estimate.whole import Whole

    tape = Tape(m.ones)
    tape.parts = Whole(tape, m)
    with writing(tape):
        buffers = define(tape, m, code_of(m.architecture, m.implementation))
        tape.finish()
        del buffers
    return tuple((flat(p.dims), p.fold) for p in tape.parameters.values() if p.trained)
