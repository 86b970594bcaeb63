"""Views, copies, slices and joins: what costs memory when only the shape changes."""

from __future__ import annotations

from peakmem.estimate.layout import GAP, Dims, dims, is_contiguous, viewable
from peakmem.estimate.node import Node
from peakmem.estimate.ops import last
from peakmem.estimate.tape import Tensor, current


def shaped(target: Dims | str) -> Dims:
    return dims(target) if isinstance(target, str) else target


def view(x: Tensor, target: Dims | str) -> Tensor:
    """view(): no memory in forward; backward is a copy where the gradient's strides allow no view.

    A view to the same shape is a node too: gradients meet one node later.
    """
    target = shaped(target)
    n = Node("view", x)
    n.gradient(0, "reshape")
    return n.output(x.seen_as(target))


def swap(x: Tensor, target: Dims | str) -> Tensor:
    """transpose() or permute(): the same dimensions in another order."""
    n = Node("transpose", x)
    n.gradient(0, "permute")
    return n.output(x.seen_as(shaped(target)))


def contiguous(x: Tensor, name: str = "") -> Tensor:
    """contiguous(): nothing if it is so already, else a copy; the gradient passes (CloneBackward0)."""
    if is_contiguous(x.dims, x.memory, current().ones):
        return x
    return clone(x, name)


def clone(x: Tensor, name: str = "") -> Tensor:
    """clone() to contiguous memory."""
    n = Node("clone", x)
    out = n.makes(x.dims, x.dtype, None, name or f"{last(x.name)}, contiguous")
    n.gradient(0, "pass")
    return n.output(out)


def reshape(x: Tensor, target: Dims | str) -> Tensor:
    """reshape(): a view where strides allow, else a copy, then a view."""
    target = shaped(target)
    if not viewable(x.memory, target, current().ones):
        x = clone(x)
    return view(x, target)


def split_heads(x: Tensor, target: Dims | str) -> Tensor:
    """(b, s, a·d) -> view(b, s, a, d).transpose(1, 2): `target` is the shape after the swap, (b, a, s, d)."""
    b, a, s, d = target = shaped(target)
    return swap(view(x, (b, s, a, d)), target)


def rename(x: Tensor, target: Dims | str) -> Tensor:
    """The same tensor with other letters for some dimensions of the same size."""
    target = shaped(target)
    other = {o: n for old, new in zip(x.dims, target, strict=True) if old != new
             for o, n in zip(old, new, strict=True)}
    n = Node("rename", x)
    n.gradient(0, "rename")
    return n.output(x.seen_as(target, tuple(other.get(letter, letter) for letter in x.memory)))


def regroup(x: Tensor, target: Dims | str) -> Tensor:
    """The same tensor with one letter for the group of letters that one dimension was made of."""
    target, ones = shaped(target), current().ones
    whole: dict[str, str] = {}
    gone: set[str] = set()
    for group, new in zip(x.dims, target, strict=True):
        if group != new:
            longer = [letter for letter in group if letter not in ones] or group
            whole[longer[-1]] = new[0]
            gone.update(letter for letter in group if letter != longer[-1])
    memory = tuple(whole.get(letter, letter) for letter in x.memory if letter not in gone)
    n = Node("regroup", x)
    n.gradient(0, "rename")
    return n.output(x.seen_as(target, memory))


def expand(x: Tensor, target: Dims | str) -> Tensor:
    """expand(): dimensions of size one become larger without memory; backward sums them (ExpandBackward0)."""
    n = Node("expand", x)
    n.gradient(0, "pass")
    return n.output(x.seen_as(shaped(target)))


def alias(x: Tensor) -> Tensor:
    """Indexing that leaves nothing out: a view of everything; the gradient passes (AliasBackward0)."""
    n = Node("alias", x)
    n.gradient(0, "pass")
    return n.output(x.seen_as(x.dims))


def select(x: Tensor, at: int) -> Tensor:
    """x[:, 0]: one element of a dimension, which goes. Backward makes a full tensor (SelectBackward0)."""
    gone = x.dims[at]
    memory = tuple(GAP if letter in gone[:1] else letter for letter in x.memory if letter not in gone[1:])
    n = Node("select", x)
    n.gradient(0)
    return n.output(x.seen_as(x.dims[:at] + x.dims[at + 1:], memory))


def piece(x: Tensor, at: int, part: tuple[str, ...] | str) -> Tensor:
    """A slice of one dimension, which gets these letters. Backward makes a full tensor (SliceBackward0)."""
    part = (part,) if isinstance(part, str) else part
    old = x.dims[at]
    memory: list[str] = []
    for letter in x.memory:
        if letter in old[:1]:
            memory += [GAP, *part]
        elif letter not in old:
            memory.append(letter)
    n = Node("slice", x)
    n.gradient(0)
    return n.output(x.seen_as(x.dims[:at] + (part,) + x.dims[at + 1:], tuple(memory)))


def split(x: Tensor, at: int, parts: list[tuple[str, ...] | str]) -> list[Tensor]:
    """split() or chunk(): views; backward joins the gradients in one cat (SplitBackward0)."""
    n = Node("split", x)
    results = []
    old = x.dims[at]
    for slot, part in enumerate(parts):
        part = (part,) if isinstance(part, str) else part
        memory: list[str] = []
        for letter in x.memory:
            if letter == old[0]:
                memory += [GAP, *part]
            elif letter not in old:
                memory.append(letter)
        results.append(n.output(x.seen_as(x.dims[:at] + (part,) + x.dims[at + 1:], tuple(memory)), slot))
    n.gradient(0, "join")
    return results


def cat(parts: list[Tensor], target: Dims | str, name: str = "joined") -> Tensor:
    """cat: a contiguous result; each part's gradient is a slice of the incoming one (CatBackward0).

    Parts of different dtypes are widened inside the kernel: CUDA's autocast does not promote them first
    (aten/src/ATen/autocast_mode.h, AT_FORALL_PROMOTE).
    """
    dtype = "fp32" if any(x.dtype == "fp32" for x in parts) else parts[0].dtype
    n = Node("cat", *parts)
    out = n.makes(shaped(target), dtype, None, name)
    for i in range(len(parts)):
        n.gradient(i, "narrow")
    return n.output(out)


def index(x: Tensor, rows: Tensor, target: Dims | str, name: str = "picked", also: Tensor | None = None) -> Tensor:
    """x[rows], rows being numbers: keeps them, the gradient is written into zeros (IndexBackward0).

    also: the numbers for a second dimension.
    """
    n = Node("index", x)
    for numbers in (rows,) if also is None else (rows, also):
        n.saves(numbers, f"which rows {n.scope} picked")
    out = n.makes(shaped(target), x.dtype, None, name)
    n.gradient(0)
    return n.output(out)


def pad(x: Tensor, letter: str) -> Tensor:
    """constant_pad_nd: a larger contiguous copy; backward copies the part that is wanted."""
    n = Node("pad", x)
    out = n.makes((*x.dims[:3], (letter,)), x.dtype, None, f"{last(x.name)}, padded")
    n.gradient(0)
    return n.output(out)
