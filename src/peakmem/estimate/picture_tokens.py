"""How the features of pictures take the places of tokens that stand for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from peakmem.estimate.layout import GAP, dims, flat
from peakmem.estimate.node import Node
from peakmem.estimate.ops import add, cast
from peakmem.estimate.positions import made
from peakmem.estimate.shapes import clone, split
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, current
from peakmem.estimate.weights import known


def like_weight(x: Tensor, name: str) -> Tensor:
    """`x.to(weight.dtype)`: pictures come in the run's dtype, kbit preparation raises what reads them."""
    return cast(x, known(name).dtype, "input in the weight's dtype")


def image_outputs(m: Structure) -> list[Tensor]:
    """A list for what the model hands out beside its logits; in generation its caller holds both."""
    return [] if m.run == "training" else current().besides


def rows_joined(x: Tensor) -> Tensor:
    """torch.cat(list(x)): one view for each picture, joined again. Backward takes slices, and stacks them.

    UnbindBackward0, CatBackward0.
    """
    n = Node("unbind", x)
    n.gradient(0)
    x = n.output(x.seen_as(x.dims))
    n = Node("cat", x)
    out = n.makes((x.dims[0] + x.dims[1], *x.dims[2:]), x.dtype, None, "features of all pictures")
    n.gradient(0, "reshape")
    return n.output(out)


def placeholders(shape: str) -> Tensor:
    """get_placeholder_mask: where the tokens of pictures are, and whether they are as many as the features."""
    mask = made(shape, "bool", "places of pictures")
    count = made("", "int64", "tokens of pictures")
    wanted = made("", "int64", "numbers of features that they take")
    equal = made("", "bool", "as many")
    del wanted
    every = made("", "bool", "all of them")
    del count, equal, every
    return mask


def masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """masked_scatter: a copy of x, part of it overwritten; backward needs the places (MaskedScatterBackward0).

    The kernel counts for every element those that are overwritten before it; backward lists three numbers of each.
    Source: aten/src/ATen/native/cuda/IndexKernel.cpp, masked_scatter__cuda and masked_select_out_cuda_impl.
    """
    n = Node("masked_scatter", x, source)
    n.saves(mask, f"which elements {n.scope} overwrote")
    n.needs_scratch((24, flat(source.dims)), "places of what was overwritten")
    out = n.makes(x.dims, x.dtype, None, "embeddings with features of pictures")
    scratch = [current().new(x.dims, dtype, None, f"{n.scope}/{name}", None, True)
               for dtype, name in (("int64", "elements overwritten before"), ("bool", "places, for every element"))]
    del scratch
    n.gradient(0)
    n.gradient(1)
    return n.output(out)


def places(shape: str) -> tuple[Tensor, Tensor]:
    """Qwen2VLModel.get_placeholder_mask: those of pictures, checked as above, and those of films, of which are none."""
    mask = made(shape, "bool", "places of pictures")
    films = made(shape, "bool", "places of films")
    count = made("", "int64", "tokens of pictures")
    wanted = made("", "int64", "numbers of features that they take")
    equal = made("", "bool", "as many")
    del wanted
    every = made("", "bool", "all of them")
    del equal, every
    of_films = made("", "int64", "tokens of films")
    del count, of_films
    return mask, films


def one_by_one(x: Tensor, count: int, part: str) -> list[Tensor]:
    """torch.split(x, sizes): the features of each picture, as views."""
    return split(x, 0, [part] * count)


def added_at(x: Tensor, mask: Tensor, extra: Tensor) -> Tensor:
    """x.clone(); x[mask] = x[mask] + extra: Qwen3VLTextModel._deepstack_process.

    Reading keeps the mask, its gradient is written into zeros; so does writing, whose gradients are a copy with zeros
    there, and what was there (IndexBackward0, IndexPutBackward0).
    """
    extra = cast(extra, x.dtype)
    x = clone(x, "hidden states, copied")
    n = Node("index", x)
    n.saves(mask, f"which rows {n.scope} read")
    read = n.makes(extra.dims, x.dtype, None, "rows of pictures")
    n.gradient(0)
    read = add(n.output(read), extra)
    n = Node("index_put", x, read)
    n.saves(mask, f"which rows {n.scope} overwrote")
    n.gradient(0, temporaries=((read.dims, x.dtype),))  # the zeros
    n.gradient(1)
    return n.output(Tensor(x.dims, x.dtype, x.memory, x.storage, x.view))


@contextmanager
def outside_layers() -> Iterator[None]:
    """Inside, names are those of what holds the layers, while one of them runs."""
    tape = current()
    outer = tape.scope, tape.layer
    tape.scope, tape.layer = tape.scope.rpartition(".")[0].rpartition(".")[0], ""
    yield
    tape.scope, tape.layer = outer


def average_pool(x: Tensor, target: str) -> Tensor:
    """avg_pool2d: keeps its input, for its shape alone (AvgPool2DBackward0)."""
    n = Node("avg_pool", x)
    n.saves(x, f"shape of what {n.scope} averaged")
    out = n.makes(dims(target), x.dtype, None, "averaged")
    n.gradient(0)
    return n.output(out)


def unbound(x: Tensor, count: int) -> list[Tensor]:
    """Iteration over the first dimension: views of each element; backward stacks their gradients (UnbindBackward0)."""
    n = Node("unbind", x)
    inside = [letter for letter in x.memory if letter not in x.dims[0]]
    parts = [n.output(x.seen_as(x.dims[1:], (GAP, *inside)), slot) for slot in range(count)]
    n.gradient(0)
    return parts


def unfolded(x: Tensor, target: str) -> Tensor:
    """F.unfold: squares of pixels, each in a column of its own (Im2ColBackward0)."""
    n = Node("im2col", x)
    out = n.makes(dims(target), x.dtype, None, "squares as columns")
    n.gradient(0)
    return n.output(out)
