"""The attention masks that transformers makes before the first layer (masking_utils.py), without padding.

Fused kernels need none unless a window hides tokens; eager code always gets one, as numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from peakmem.estimate.inference import see
from peakmem.estimate.layout import dims
from peakmem.estimate.positions import made, packed_sequences
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor


def layer_masks(m: Structure, dtype: str, kinds: Iterable[str], packed: bool = True) -> dict[str, Tensor | None]:
    """The mask of each kind of layer, made in this order: `full` is plain causal, `sliding` has a window."""
    make = {"full": causal_mask, "sliding": sliding_mask}
    return {kind: make[kind](m, dtype, packed) for kind in kinds}


def causal_mask(m: Structure, dtype: str, packed: bool = True) -> Tensor | None:
    """create_causal_mask: none for fused kernels, (b, 1, s, s) numbers for eager.

    packed: the model hands its positions over, which are searched for packed sequences.
    """
    if m.kernel("full") == "eager":
        return full_mask(m, dtype, packed)
    if packed:
        packed_sequences()
    see("full")
    return None


def full_mask(m: Structure, dtype: str, packed: bool = True) -> Tensor:
    """create_causal_mask where it may not skip the mask: fused kernels get theirs too, as truth values."""
    if packed:
        packed_sequences()
    see("full")
    return as_numbers(boolean_mask(), dtype) if m.kernel("full") == "eager" else boolean_mask()


def sliding_mask(m: Structure, dtype: str, packed: bool = True) -> Tensor | None:
    """create_sliding_window_causal_mask: fused kernels need none while the window holds all tokens.

    empty_window: no window is one of 0 tokens (Qwen2-MoE), so the mask is made and no layer reads it.
    """
    if packed:
        packed_sequences()
    see("sliding")
    if m.kernel("sliding") == "eager":
        return as_numbers(boolean_mask(windowed=True), dtype)
    return boolean_mask(windowed=True) if m.has("narrow_window") or m.has("empty_window") else None


def both_sides_mask(m: Structure, dtype: str) -> Tensor | None:
    """create_bidirectional_sliding_window_mask: none while the window holds all tokens, for eager code too."""
    if not m.has("narrow_window"):
        return None
    mask = boolean_mask(condition=near)
    return as_numbers(mask, dtype) if m.kernel("sliding") == "eager" else mask


def target_mask(m: Structure, dtype: str, packed: bool = False) -> Tensor | None:
    """create_causal_mask of a decoder that reads an encoder: positions are counted by t."""
    if packed:
        packed_sequences("t")
    return as_numbers(boolean_mask(at="t"), dtype, "t") if m.kernel("full") == "eager" else None


def padded_target_mask(m: Structure, dtype: str) -> Tensor | None:
    """The same where the decoder hands a mask of ones over, in which padding is looked for."""
    padding = made("b t'", "bool", "what is no padding")
    if m.kernel("full") != "eager":
        count = made("", "int64", "tokens that are no padding")
        every = made("", "bool", "whether none is padding")
        del count, every, padding
        return None
    mask = as_numbers(boolean_mask(at="t", condition=causal_and_real), dtype, "t")
    del padding
    return mask


def causal_and_real() -> Tensor:
    """and_masks of causal_mask_function and padding_mask_function."""
    result = made("", "bool", "one")
    condition = made("1 1 t t'", "bool", "causal mask")
    result = made("1 1 t t'", "bool", "causal mask")
    del condition
    condition = made("b 1 1 t'", "bool", "what is no padding")
    result = made("b 1 t t'", "bool", "causal mask without padding")
    del condition
    return result


def boolean_mask(windowed: bool = False, at: str = "s", condition: Callable[[], Tensor] | None = None) -> Tensor:
    """sdpa_mask: four aranges, then the comparisons, seen as (b, 1, s, s). condition: makes them, if not causal."""
    batch, head = made("b", "int64", "batch numbers"), made("1", "int64", "head numbers")
    rows = made(at, "int64", "query numbers")
    rows = made(at, "int64", "query numbers")
    columns = made(f"{at}'", "int64", "key numbers")
    columns = made(f"{at}'", "int64", "key numbers")
    condition = condition or (window_and_causal if windowed else None)
    mask = condition() if condition is not None else made(f"1 1 {at} {at}'", "bool", "causal mask")
    del batch, head, rows, columns
    return mask.seen_as(dims(f"b 1 {at} {at}'"))


def window_and_causal() -> Tensor:
    """and_masks of sliding_window_overlay and causal_mask_function: each condition, then a conjunction."""
    result = made("", "bool", "one")
    start = made("s", "int64", "first key of the window")
    condition = made("1 1 s s'", "bool", "inside the window")
    del start
    result = made("1 1 s s'", "bool", "window mask")
    del condition
    condition = made("1 1 s s'", "bool", "causal mask")
    result = made("1 1 s s'", "bool", "window mask")
    del condition
    return result


def near() -> Tensor:
    """and_masks of sliding_window_bidirectional_overlay and a condition that always holds."""
    result = made("", "bool", "one")
    distances = made("1 1 s s'", "int64", "distances")
    distances = made("1 1 s s'", "int64", "distances, positive")
    condition = made("1 1 s s'", "bool", "inside the window")
    del distances
    result = made("1 1 s s'", "bool", "window mask")
    del condition
    condition = made("1 1 s 1", "bool", "any token")
    result = made("1 1 s s'", "bool", "window mask")
    del condition
    return result


def as_numbers(mask: Tensor, dtype: str, at: str = "s") -> Tensor:
    """eager_mask: the boolean mask as numbers, 0 or the lowest of the dtype."""
    return where(mask, f"b 1 {at} {at}'", dtype, "causal mask as numbers")


def where(mask: Tensor, target: str, dtype: str, name: str) -> Tensor:
    """where(mask, 0, lowest): both numbers become tensors first."""
    zero = made("", dtype, "zero")
    lowest = made("", dtype, "lowest number")
    out = made(target, dtype, name)
    del zero, lowest
    return out
