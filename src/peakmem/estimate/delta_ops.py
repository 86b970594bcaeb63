"""Operations that only the gated delta rule needs, each with its entry in derivatives.yaml in the docstring."""

from __future__ import annotations

from peakmem.estimate.attention import bmm
from peakmem.estimate.layout import GAP, Dims, channels_last, dense_order, dims, flat
from peakmem.estimate.node import Node
from peakmem.estimate.ops import autocast, autocast_fp32, result_like
from peakmem.estimate.shapes import rename, reshape, swap, view
from peakmem.estimate.tape import Tensor, current


def exp(x: Tensor, name: str = "exp") -> Tensor:
    """exp: the result is kept, the gradient is multiplied with it."""
    x = autocast_fp32(x)
    n = Node("exp", x)
    out = result_like(n, x, None, name)
    n.keeps(out, f"slope of exp in {n.scope}")
    n.gradient(0, memory="grad")
    return n.output(out)


def softplus(x: Tensor) -> Tensor:
    """softplus: keeps its input; one kernel backward."""
    x = autocast_fp32(x)
    n = Node("softplus", x)
    n.saves(x, f"slope of softplus in {n.scope}")
    out = result_like(n, x, None, "softplus")
    n.gradient(0, memory="grad")
    return n.output(out)


def cumsum(x: Tensor) -> Tensor:
    """cumsum: nothing is kept; `grad.flip(dim).cumsum(dim).flip(dim)` makes two tensors on the way."""
    n = Node("cumsum", x)
    out = n.makes(x.dims, x.dtype, None, "cumulative sum")
    n.gradient(0, temporaries=((x.dims, x.dtype), (x.dims, x.dtype)))
    return n.output(out)


def masked_fill(x: Tensor, mask: Tensor) -> Tensor:
    """masked_fill with a number: keeps the mask; result and gradient are contiguous copies, filled in place."""
    n = Node("masked_fill", x)
    n.saves(mask, f"which elements {n.scope} hid")
    out = n.makes(x.dims, x.dtype, None, "masked")
    n.gradient(0)
    return n.output(out)


def pairwise_difference(x: Tensor) -> Tensor:
    """x.unsqueeze(4) - x.unsqueeze(3): the second one's gradient is negated at full size, both are summed."""
    rows = view(x, (*x.dims, ()))
    last = x.dims[-1][0]
    columns = rename(view(x, (*x.dims[:-1], (), x.dims[-1])), (*x.dims[:-1], (), (f"{last}'",)))
    n = Node("sub", rows, columns)
    full: Dims = (*x.dims, (f"{last}'",))
    out = n.makes(full, x.dtype, None, "pairwise difference")
    n.gradient(1, dims=full)
    n.gradient(0, "pass")
    return n.output(out)


def solve_triangular(a: Tensor, b: Tensor, name: str) -> Tensor:
    """linalg.solve_triangular: keeps the matrix and the result, whose columns lie together.

    The gradient of b is solved for first; that of the matrix is a product, negated, then its triangle
    (FunctionsManual.cpp, linalg_solve_triangular_backward).
    """
    n = Node("solve_triangular", a, b)
    memory = flat(b.dims[:-2]) + b.dims[-1] + b.dims[-2]
    n.saves(a, f"gradient of the right side in {n.scope}")
    out = n.makes(b.dims, b.dtype, memory, name)
    n.keeps(out, f"gradient of the matrix in {n.scope}")
    n.gradient(1, memory=memory)
    n.gradient(0, steps="+product +negated -product")
    return n.output(out)


def put_at(x: Tensor, at: int, part: Tensor) -> Tensor:
    """x[:, :, i] = part: as put of estimate/slices.py, for one element of a dimension."""
    n = Node("copy into slice", x, part)
    where = x.dims[:at] + x.dims[at + 1:]
    if n.needs(0):
        n.gradient(0, memory=x.memory)
    else:
        n.works(x.dims, x.dtype, x.memory)
    same = part.dtype == x.dtype
    if same and n.needs(1):
        n.gradient(1, dims=where)
    else:
        n.works(where, x.dtype)
    if n.needs(0):
        n.works(where, x.dtype)
    if not same:
        n.gradient(1, dims=where)
    return n.output(Tensor(x.dims, x.dtype, x.memory, x.storage, x.view))


def by_batch(x: Tensor, y: Tensor) -> Tensor:
    """matmul over any leading dimensions: bmm. Autocast takes its arguments from right to left."""
    other = autocast(y)
    given = autocast(x)
    lead, rows, columns = x.dims[:-2], x.dims[-2], y.dims[-1]
    one = flat(lead)
    out = bmm(reshape(given, (one, rows, x.dims[-1])), reshape(other, (one, *y.dims[-2:])))
    del given, other
    return view(out, (*lead, rows, columns))


def keys_across(x: Tensor, target: str) -> Tensor:
    """transpose(-1, -2), the tokens called by another letter."""
    last = x.dims[-2][0]
    x = rename(x, (*x.dims[:-2], (f"{last}'",), x.dims[-1]))
    return swap(x, target)


def pad_tokens(x: Tensor, whole: bool, at: int = 2, chunk: str = "64") -> Tensor:
    """F.pad of the tokens to whole chunks: a copy in any case, and another backward (ConstantPadNdBackward0).

    Where nothing is to be padded it is a clone, which keeps the order of x; else it has x's suggested memory format
    (constant_pad_nd in aten/src/ATen/native/PadNd.cpp). at: the dimension of the tokens.
    """
    n = Node("pad", x)
    kept = whole or channels_last(x.dims, x.memory, current().ones)
    inside = dense_order(x.dims, x.memory) if kept else flat(x.dims)
    memory = tuple(part for letter in inside for part in (("nc", chunk) if letter == "s" else (letter,)))
    out = n.makes((*x.dims[:at], ("nc", chunk), *x.dims[at + 1:]), x.dtype, memory, "padded")
    n.gradient(0, "clone")
    return n.output(out)


def to_dtype(x: Tensor, dtype: str) -> Tensor:
    """to(dtype, memory_format=contiguous_format): contiguous where it is copied.

    Where the dtype is right it is x itself, unless x lies as images with channels last do (TensorConversions.cpp,
    to_will_alias asks suggest_memory_format).
    """
    if x.dtype == dtype and not channels_last(x.dims, x.memory, current().ones):
        return x
    n = Node("cast", x)
    out = n.makes(x.dims, dtype, None, f"{dtype} copy")
    n.gradient(0, "pass")
    return n.output(out)


def without_padding(x: Tensor, target: str, whole: bool) -> Tensor:
    """x[:, :, :sequence_length]: where nothing was padded, the same tensor under another node."""
    n = Node("alias" if whole else "slice", x)
    wanted = dims(target)
    memory: list[str] = []
    place, other = ("64", "nc") if "nc" in current().ones else ("nc", "64")
    for letter in x.memory:
        memory += (["s"] if whole else [GAP, "s"]) if letter == place else [] if letter == other else [letter]
    n.gradient(0, "rename" if whole else "new")
    return n.output(x.seen_as(wanted, tuple(memory)))


