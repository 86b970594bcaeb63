"""Masks of models in which the tokens of a picture look at one another both ways (masking_utils.py of transformers)."""

from __future__ import annotations

from collections.abc import Callable

from peakmem.estimate.inference import see
from peakmem.estimate.masks import as_numbers, window_and_causal
from peakmem.estimate.positions import made, packed_sequences
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor


def two_way_masks(m: Structure, dtype: str) -> tuple[Tensor, dict[str, Tensor | None]]:
    """create_masks_for_vision_model, and the numbers that it tells pictures by: truth values, or numbers for eager
    code. Fused kernels get a mask in every layer."""
    groups = numbers_of_pictures()
    eager = m.kernel("full") == "eager"
    masks: dict[str, Tensor | None] = {}
    for kind in ("full", "sliding"):
        see(kind)
        mask = two_way_mask(windowed=kind == "sliding")
        masks[kind] = as_numbers(mask, dtype) if eager else mask
        del mask
    return groups, masks


def prefix_masks(m: Structure, dtype: str, kinds: tuple[str, ...]) -> tuple[Tensor, dict[str, Tensor | None]]:
    """create_causal_mask and create_sliding_window_causal_mask of PaliGemmaModel: what comes before the answer is one
    block, seen both ways."""
    prefix = made("b s", "bool", "tokens of picture and prompt")
    zero, minus_one = made("", "int64", "zero"), made("", "int64", "minus one")
    groups = made("b s", "int64", "numbers of the blocks")
    del prefix, zero, minus_one
    masks: dict[str, Tensor | None] = {}
    for kind in kinds:
        packed_sequences()
        see(kind)
        mask = two_way_mask(windowed=False, before=window_and_causal if kind == "sliding" else None)
        masks[kind] = as_numbers(mask, dtype) if m.kernel("full") == "eager" else mask
        del mask
    return groups, masks


def numbers_of_pictures() -> Tensor:
    """get_block_sequence_ids_for_mask: which picture a token belongs to, -1 for text."""
    is_image = made("b s", "bool", "tokens of pictures")
    before = made("b s+1", "bool", "tokens of pictures, one on")
    text = made("b s", "bool", "tokens of text")
    starts = made("b s", "bool", "first tokens of pictures")
    del text
    counted = made("b s", "int32", "first tokens as numbers")
    numbers = made("b s", "int64", "pictures so far")
    del counted
    numbers = made("b s", "int64", "pictures before")
    minus_one = made("", "int64", "minus one")
    groups = made("b s", "int64", "numbers of the pictures")
    del minus_one, is_image, before, starts, numbers
    return groups


def two_way_mask(windowed: bool, before: Callable[[], Tensor] | None = None) -> Tensor:
    """A key is seen that comes before, or belongs to the same picture; both only inside the window, where one is.

    before: makes the mask of the keys before, where it is not plain causal.
    """
    batch, head = made("b", "int64", "batch numbers"), made("1", "int64", "head numbers")
    rows = made("s", "int64", "query numbers")
    rows = made("s", "int64", "query numbers")
    columns = made("s'", "int64", "key numbers")
    columns = made("s'", "int64", "key numbers")
    one = made("s", "bool", "ones") if windowed else None
    seen = earlier_or_same_picture(windowed, before)
    if windowed:
        both = made("b 1 s s'", "bool", "seen keys")
        del seen, one
        start = made("s", "int64", "first key of the window")
        inside = made("1 1 s s'", "bool", "inside the window")
        del start
        seen = made("b 1 s s'", "bool", "seen keys inside the window")
        del inside, both
    del batch, head, rows, columns
    return seen


def earlier_or_same_picture(windowed: bool, condition: Callable[[], Tensor] | None = None) -> Tensor:
    """or_masks(causal_mask_function, blockwise_overlay(groups))."""
    zero = made("s" if windowed else "", "bool", "zeros")
    before = made("1 1 s s'", "bool", "keys before") if condition is None else condition()
    earlier = made("1 1 s s'", "bool", "earlier keys")
    del before, zero
    of_query, of_key = made("b s", "int64", "pictures of queries"), made("b s'", "int64", "pictures of keys")
    same = made("b 1 s s'", "bool", "same picture, or text")
    pictured = made("b s", "bool", "queries in pictures")
    both = made("b 1 s s'", "bool", "same picture")
    del same, pictured, of_query, of_key
    seen = made("b 1 s s'", "bool", "seen keys")
    del both, earlier
    return seen
