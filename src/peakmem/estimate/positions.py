"""What transformers makes before the first layer: position numbers, rotary tables, masks.

Small integer tensors mostly, all dead before the first layer runs, except what layers keep.
"""

from __future__ import annotations

from peakmem.estimate.layout import dims
from peakmem.estimate.ops import add, cast, mul, neg
from peakmem.estimate.shapes import cat, piece
from peakmem.estimate.tape import Tensor, current


def made(text: str, dtype: str, name: str) -> Tensor:
    """A tensor that no gradient flows through."""
    tape = current()
    return tape.new(dims(text), dtype, None, f"{tape.scope}/{name}")


def positions() -> Tensor:
    """0 … s-1 as (1, s): an arange, then the number of tokens seen before is added."""
    numbers = made("s", "int64", "arange")
    numbers = made("s", "int64", "position ids")
    return numbers


def packed_sequences() -> None:
    """find_packed_sequence_indices in masking_utils.py: looks whether positions jump, finds that they do not."""
    first = made("b 1", "int64", "first position")
    joined = made("b s+1", "int64", "positions with a first")
    steps = made("b s", "int64", "steps of the positions")
    del joined
    jumps = made("b s", "bool", "jumps of the positions")
    sums = made("b s", "int64", "sequence numbers")
    del jumps
    last = made("b", "bool", "one sequence per row")
    every = made("", "bool", "one sequence in all rows")
    del last, every
    del first, steps, sums


def rotary_table(dtype: str, half: str = "d/2", size: str = "d", prefix: str = "1 s") -> tuple[Tensor, Tensor]:
    """cos and sin of every position, made in fp32, then cast: XxxRotaryEmbedding.forward."""
    numbers = made("1 s 1", "fp32", "positions in fp32")
    angles = made(f"{prefix} {half}", "fp32", "angles")
    del numbers
    both = made(f"{prefix} {size}", "fp32", "angles twice")
    cos = made(f"{prefix} {size}", "fp32", "cosine")
    cos = made(f"{prefix} {size}", "fp32", "cosine table")
    sin = made(f"{prefix} {size}", "fp32", "sine")
    sin = made(f"{prefix} {size}", "fp32", "sine table")
    tables = cast(cos, dtype), cast(sin, dtype)
    del both, angles
    return tables


def rotate(x: Tensor, cos: Tensor, sin: Tensor, half: str = "d/2") -> Tensor:
    """apply_rotary_pos_emb for one tensor: x·cos + rotate_half(x)·sin."""
    straight = mul(x, cos, "x·cos")
    return add(straight, mul(rotate_half(x, half), sin, "rotated·sin"), "rotated")


def rotate_half(x: Tensor, half: str) -> Tensor:
    """The two halves of each head swapped, the new first one negated; cat makes it contiguous."""
    at = len(x.dims) - 1
    x1 = piece(x, at, half)
    x2 = piece(x, at, half)
    return cat([neg(x2), x1], x.dims, "rotated half")
