"""Rotary positions that turn each element with its neighbour (Cohere, GPT-J), instead of one half with the other."""

from __future__ import annotations

from peakmem.estimate.layout import GAP, Dims
from peakmem.estimate.node import Node
from peakmem.estimate.ops import add, mul, neg
from peakmem.estimate.positions import made
from peakmem.estimate.shapes import regroup, view
from peakmem.estimate.tape import Tensor


def rotate_pairs(x: Tensor, cos: Tensor, sin: Tensor, half: str) -> Tensor:
    """apply_rotary_pos_emb for one tensor: x·cos + rotate_every_two(x)·sin."""
    straight = mul(x, cos, "x·cos")
    return add(straight, mul(pairs_swapped(x, half), sin, "rotated·sin"), "rotated")


def pairs_swapped(x: Tensor, half: str) -> Tensor:
    """stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)."""
    x1 = every_other(x, half)
    x2 = every_other(x, half)
    pairs = stack([neg(x2), x1])
    return regroup(view(pairs, (*x.dims[:-1], (half, "2"))), x.dims)


def every_other(x: Tensor, half: str) -> Tensor:
    """x[..., ::2]: backward makes a full tensor (SliceBackward0)."""
    letter = x.dims[-1][0]
    memory: list[str] = []
    for other in x.memory:
        memory += [half, GAP] if other == letter else [other]
    n = Node("slice", x)
    n.gradient(0)
    return n.output(x.seen_as((*x.dims[:-1], (half,)), tuple(memory)))


def stack(parts: list[Tensor]) -> Tensor:
    """stack along a new last dimension; the gradients are views of the incoming one (StackBackward0: unbind)."""
    shape: Dims = (*parts[0].dims, (str(len(parts)),))
    n = Node("stack", *parts)
    out = n.makes(shape, parts[0].dtype, None, "pairs")
    for i in range(len(parts)):
        n.gradient(i, "unbind")
    return n.output(out)


def pair_table(dtype: str) -> tuple[Tensor, Tensor]:
    """CohereRotaryEmbedding.forward: cos and sin of every position, each angle twice in a row."""
    numbers = made("1 s 1", "fp32", "positions in fp32")
    angles = made("1 s d/2", "fp32", "angles")
    del numbers
    both = made("1 s d", "fp32", "angles twice")
    cos = made("1 s d", "fp32", "cosine")
    cos = made("1 s d", "fp32", "cosine table")
    sin = made("1 s d", "fp32", "sine")
    sin = made("1 s d", "fp32", "sine table")
    if dtype != "fp32":
        cos, sin = made("1 s d", dtype, "cosine table"), made("1 s d", dtype, "sine table")
    del both, angles
    return cos, sin


def repeated_twice(table: Tensor, part: str, name: str) -> Tensor:
    """repeat_interleave(half[:, :, None, :], 2, 3): each number of half a table twice in a row."""
    return made(f"1 s 1 {part}", table.dtype, name)
