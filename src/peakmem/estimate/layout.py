"""Shapes and strides without numbers.

A dimension is a group of letters whose product is its size, a shape is a tuple of groups: `"b s (a d)"`.
Memory order is a tuple of letters, outermost first; a letter that is in the shape and not in memory is
expanded (stride 0); `GAP` stands where a slice leaves elements out. That is enough to decide, as PyTorch
does (aten/src/ATen/TensorUtils.cpp, computeStride), whether a reshape is a view or a copy.

A letter may be derived from others: `d/2`, `a/k` (rounded up), `s^32` (rounded up to a multiple of 32),
`d-r`. A prime only tells two equal dimensions of one tensor apart: `s'` has the size of `s`.
"""

from __future__ import annotations

from functools import lru_cache

from peakmem.errors import Impossible

Dims = tuple[tuple[str, ...], ...]
Memory = tuple[str, ...]

GAP = "|"

BYTES = {"fp32": 4, "bf16": 2, "fp16": 2, "int64": 8, "int32": 4, "uint64": 8, "uint8": 1, "bool": 1,
         "complex64": 8}
FLOATS = frozenset({"fp32", "bf16", "fp16"})


@lru_cache(maxsize=4096)
def dims(text: str) -> Dims:
    """`"b s (a d)"` as groups of letters; `"1"` is a dimension of size one, `"()"` is the shape of a scalar."""
    groups: list[tuple[str, ...]] = []
    inside: list[str] | None = None
    for word in text.replace("(", " ( ").replace(")", " ) ").split():
        if word == "(":
            inside = []
        elif word == ")":
            if inside:
                groups.append(tuple(inside))
            inside = None
        elif inside is not None:
            inside.append(word)
        else:
            groups.append(() if word == "1" else (word,))
    return tuple(groups)


@lru_cache(maxsize=4096)
def flat(shape: Dims) -> Memory:
    """The letters of a shape in order: its memory when it is contiguous."""
    return tuple(letter for group in shape for letter in group)


@lru_cache(maxsize=4096)
def squeezed(memory: Memory, ones: frozenset[str]) -> Memory:
    """Memory order without what has no influence: dimensions of size one, and gaps outside all others."""
    kept: list[str] = []
    for letter in memory:
        if letter == GAP:
            if kept and kept[-1] != GAP:
                kept.append(GAP)
        elif not is_single(letter, ones):
            kept.append(letter)
    return tuple(kept)


def is_one(group: tuple[str, ...], ones: frozenset[str]) -> bool:
    """Whether a dimension has one element."""
    return all(is_single(letter, ones) for letter in group)


def is_single(letter: str, ones: frozenset[str]) -> bool:
    """Whether a letter's number is one. While a token is decoded its keys are many: `ones` then has "many s'"."""
    return letter.rstrip("'") in ones and f"many {letter}" not in ones


@lru_cache(maxsize=4096)
def is_contiguous(shape: Dims, memory: Memory, ones: frozenset[str]) -> bool:
    """Whether elements lie in memory as the shape counts them, without gaps."""
    return squeezed(memory, ones) == squeezed(flat(shape), ones)


@lru_cache(maxsize=4096)
def channels_last(shape: Dims, memory: Memory, ones: frozenset[str]) -> bool:
    """Whether four dimensions lie in the order first, third, fourth, second, as suggest_memory_format sees it.

    It looks at the stride of a single channel, too (c10/core/MemoryFormat.h, is_channels_last_strides_2d_s4).
    """
    if len(shape) != 4:
        return False
    n, c, h, w = shape
    whole = tuple(letter for letter in memory if letter != GAP)
    inside = squeezed(whole, ones)
    if c and not squeezed(c, ones) and whole[-len(c):] == c:
        return bool(squeezed(h + w, ones)) and inside == squeezed(n + h + w, ones)
    return inside == squeezed(n + h + w + c, ones) and not is_contiguous(shape, inside, ones)


@lru_cache(maxsize=4096)
def is_dense(shape: Dims, memory: Memory, ones: frozenset[str]) -> bool:
    """Whether the tensor fills its memory without gap and overlap, in whatever order."""
    inside = squeezed(memory, ones)
    return GAP not in inside and len(inside) == len(squeezed(flat(shape), ones))


@lru_cache(maxsize=4096)
def viewable(memory: Memory, target: Dims, ones: frozenset[str]) -> bool:
    """Whether a tensor with this memory order can be seen in the target's grouping without a copy."""
    inside = squeezed(memory, ones)
    neighbours = set(zip(inside, inside[1:], strict=False))
    for group in target:
        letters = [letter for letter in group if not is_single(letter, ones)]
        for x, y in zip(letters, letters[1:], strict=False):
            if (x, y) not in neighbours and (x in inside or y in inside):
                return False
    return True


@lru_cache(maxsize=4096)
def dense_order(shape: Dims, memory: Memory) -> Memory:
    """The memory that `empty_like` and pointwise operations give a result: the same order, without gaps.

    An expanded dimension becomes innermost of those it stood beside: TensorIterator finds no stride to sort it
    by, so it keeps its place in the shape.
    """
    inside = tuple(letter for letter in memory if letter != GAP)
    wanted = flat(shape)
    if len(inside) == len(wanted):
        return inside
    return wanted


def with_last(shape: Dims, memory: Memory, group: tuple[str, ...]) -> Memory:
    """The memory of a result like this one, whose last dimension has other letters."""
    other = dict(zip(shape[-1], group, strict=True))
    return tuple(other.get(letter, letter) for letter in dense_order(shape, memory))


def multiplied(group: tuple[str, ...]) -> str:
    """A dimension of several letters as one derived letter."""
    plain = (letter.rstrip("'") for letter in group)
    return f"({'*'.join(f'({x})' if '/' in x else x for x in plain)})"


@lru_cache(maxsize=8192)
def size_key(dtype: str, letters: Memory) -> tuple[int, tuple[str, ...]]:
    """Bytes of a dense tensor as a product: bytes per element and the letters, sorted, primes dropped."""
    return BYTES[dtype], tuple(sorted(letter.rstrip("'") for letter in letters))


def renamed(letters: Memory, other: dict[str, str]) -> Memory:
    """Letters under their other names, also inside derived ones: with s for 1, `s+1` is `1+1`."""
    result = []
    for letter in letters:
        end = 2 if letter[1:2] == "'" else 1
        if letter not in other and letter[:end] in other and letter[end:end + 1] in ("+", "-", "^", "/"):
            letter = other[letter[:end]] + letter[end:]
        result.append(other.get(letter, letter))
    return tuple(letter for letter in result if letter != "1")


def rows_of(shape: Dims, count: str = "w") -> Dims:
    """The shape of one shard: the rows divided by the number of GPUs, rounded up."""
    if not shape:  # torch/distributed/fsdp/_fully_shard/_fsdp_init.py refuses them, too
        raise Impossible("--shard fsdp2: fully_shard does not take a model with scalar parameters")
    rows = "*".join(f"({letter})" if "+" in letter or "-" in letter else letter for letter in shape[0]) or "1"
    return ((f"{rows}/{count}",), *shape[1:])
