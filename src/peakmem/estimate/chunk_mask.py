"""Attention within chunks: create_chunked_causal_mask of transformers' masking_utils.py, without padding."""

from __future__ import annotations

from peakmem.estimate.inference import see
from peakmem.estimate.layout import dims
from peakmem.estimate.masks import as_numbers
from peakmem.estimate.positions import made, packed_sequences
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor


def chunked_mask(m: Structure, dtype: str) -> Tensor | None:
    """Fused kernels need none while a chunk holds all tokens; the padding on the left is counted all the same."""
    packed_sequences()
    see("chunked")
    padding = made("b", "int64", "padding on the left")
    mask = None
    if m.kernel("sliding") == "eager":
        mask = as_numbers(same_chunk_and_causal(), dtype)
    elif m.has("narrow_window"):
        mask = same_chunk_and_causal()
    del padding
    return mask


def same_chunk_and_causal() -> Tensor:
    """and_masks of chunked_overlay and causal_mask_function on sdpa_mask's four aranges."""
    batch, head = made("b", "int64", "batch numbers"), made("1", "int64", "head numbers")
    rows = made("s", "int64", "query numbers")
    rows = made("s", "int64", "query numbers")
    columns = made("s", "int64", "key numbers")
    columns = made("s", "int64", "key numbers")
    result = made("", "bool", "one")
    condition = same_chunk()
    result = made("b 1 s s'", "bool", "chunk mask")
    del condition
    condition = made("1 1 s s'", "bool", "causal mask")
    result = made("b 1 s s'", "bool", "chunk mask")
    del condition, batch, head, rows, columns
    return result.seen_as(dims("b 1 s s'"))


def same_chunk() -> Tensor:
    """The keys' chunk numbers against the queries'."""
    keys, queries = (chunk_numbers(shape) for shape in ("b 1 1 s'", "b 1 s 1"))
    equal = made("b 1 s s'", "bool", "in the same chunk")
    del keys, queries
    return equal


def chunk_numbers(shape: str) -> Tensor:
    """(positions - padding) // chunk."""
    start = made("b", "int64", "first position")
    shifted = made(shape, "int64", "positions without padding")
    del start
    return divided(shape, shifted)


def divided(shape: str, shifted: Tensor) -> Tensor:
    numbers = made(shape, "int64", "chunk numbers")
    del shifted
    return numbers
