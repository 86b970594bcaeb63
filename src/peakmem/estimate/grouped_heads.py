"""Several queries for one key/value head: repeated keys, packed queries."""

from __future__ import annotations

from peakmem.estimate.layout import Dims, is_one
from peakmem.estimate.node import Node
from peakmem.estimate.ops import last
from peakmem.estimate.shapes import reshape
from peakmem.estimate.tape import Tensor, current


def repeat_heads(x: Tensor, always: bool = False) -> Tensor:
    """transformers' repeat_kv: each key/value head once for every query head of its group.

    A copy, unless there is one such head and `always` is not asked for. Backward sums the groups.
    """
    b, _, s, d = x.dims
    wide: Dims = (b, ("a",), s, d)
    n = Node("repeat heads", x)
    n.gradient(0, "new", view=True)
    if is_one(x.dims[1], current().ones) and not always:
        return n.output(x.seen_as(wide, tuple(letter for letter in x.memory if letter not in x.dims[1])))
    return n.output(n.makes(wide, x.dtype, None, f"{last(x.name)}, repeated"))


def packed_queries(q: Tensor, k: Tensor) -> Tensor:
    """pack_gqa of integrations/sdpa_attention.py: one token's queries of a group become rows of one head."""
    (b, (a,), one, d), (group,) = q.dims, k.dims[1]
    rows = f"{a}/{group}"
    memory = [part for letter in q.memory for part in ((group, rows) if letter == a else (letter,))]
    n = Node("by group", q)
    n.gradient(0, "rename")
    return reshape(n.output(q.seen_as((b, (group, rows), one, d), tuple(memory))), (b, (group,), (rows,), d))
