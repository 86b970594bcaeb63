"""Rules that several families share: head sizes, windows, rotary positions, heads on top."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from peakmem.errors import Impossible, Unreadable, printable
from peakmem.readers.fields import Fields

Sizes = dict[str, Any]
"""Keyword arguments of `Model`."""

KINDS: Mapping[str, str] = {"full_attention": "full", "attention": "full", "sliding_attention": "sliding"}
MOST_LISTED = 10**6
"""Most layers of a model whose layers differ: there is one word for each."""


def kv_heads(f: Fields, heads: int) -> int:
    """Key/value heads: they divide the heads, which share them."""
    count = f.count("num_key_value_heads", null=heads)
    if count > heads or heads % count:
        raise Impossible(f"{f.file}: {f.said('num_key_value_heads')} must divide {f.said('num_attention_heads')}")
    return count


def head_size(f: Fields, hidden: str = "hidden_size", heads: str = "num_attention_heads", own: bool = True) -> int:
    """The file's head_dim where the family has one (`own`), else hidden ÷ heads."""
    if own and ("head_dim" in f.given or "head_dim" in f.defaults):
        given = f.count("head_dim", null=None if f.defaults.get("head_dim") else 0)
        if given:
            return given
    if f.count(hidden) % f.count(heads):
        hint = "; give head_dim, or sizes that fit" if own else ""
        raise Impossible(f"{f.file}: {f.said(hidden)} is not divisible by {f.said(heads)}{hint}")
    return f.count(hidden) // f.count(heads)


def even(f: Fields, what: str, size: int) -> int:
    """Rotary positions turn pairs of elements. Errors: Impossible."""
    if size % 2 or not size:
        raise Impossible(f"{f.file}: {what} is {size}; rotary positions need an even number of at least 2")
    return size


def layers(f: Fields, name: str = "num_hidden_layers") -> int:
    """How many layers, where each may be of its own kind. Errors: Unreadable beyond `MOST_LISTED`."""
    count = f.count(name)
    if count > MOST_LISTED:
        raise f.wrong(name, f"layers of different kinds are listed one by one, at most {MOST_LISTED:,}")
    return count


def windowed(f: Fields, window: int, kinds: tuple[str, ...]) -> Sizes:
    """Window and kinds of each layer, said once where all layers are alike. Errors: Impossible."""
    if "sliding" not in kinds:
        return {"window": 0, "layer_kinds": ()}
    if not window:
        raise Impossible(f"{f.file}: there are sliding layers, but no sliding_window in use; give "
                         "sliding_window (and use_sliding_window true), or full layers")
    return {"window": window, "layer_kinds": kinds if "full" in kinds else ()}


def rope(f: Fields) -> Mapping[str, Any]:
    """The settings of the rotary positions, empty where the file has none. Errors: Unreadable."""
    for name in ("rope_scaling", "rope_parameters"):
        value = f.given.get(name)
        if value is not None and not isinstance(value, dict):
            raise f.wrong(name, "give an object or null")
        if value:
            return value
    return {}


def rope_switches(f: Fields) -> frozenset[str]:
    """Kinds of rotary positions that recompute their frequencies in the forward pass."""
    words = {str(part.get("rope_type", part.get("type", "default"))) for part in rope_parts(f)}
    if f.given.get("model_type") == "phi3" and words & {"su", "yarn"}:
        words |= {"longrope"}
    return frozenset({"longrope"} & words) | ({"dynamic_rope"} if any("dynamic" in w for w in words) else set())


def rope_parts(f: Fields) -> Iterator[Mapping[str, Any]]:
    """The settings, or one of them for each kind of layer."""
    found = rope(f)
    yield found
    for value in found.values():
        if isinstance(value, dict):
            yield value


def rotary_part(f: Fields, size: int, field: str, default: float, exact: bool = False) -> int:
    """Rotated elements of a head; 0 where all are. exact: the model cuts a head there itself. Errors: Impossible."""
    inside = rope(f).get("partial_rotary_factor")
    part = Fields(f.file, {field: inside} if inside is not None else f.given, {field: default})
    share = part.fraction(field)
    f.used.add(field)
    rotated = int(size * share)
    if exact:
        even(f, f"{field} {share:g} of head size {size}", rotated)
    rotated += rotated % 2  # arange(0, rotated, 2): an odd last element gets a frequency, and a partner, of its own
    if rotated > size or not rotated:
        even(f, f"{field} {share:g} of head size {size}", int(size * share))
    return 0 if rotated == size else rotated


def experts(f: Fields, count_name: str, least: int = 1, chosen: str = "num_experts_per_tok") -> Sizes:
    """Experts, and how many of them each token meets. Errors: Impossible."""
    count = f.count(count_name, least=least)
    met = f.count(chosen, least=min(count, 1))
    if count and met > count:
        raise Impossible(f"{f.file}: {f.said(chosen)} is more than {f.said(count_name)}")
    return {"experts": count, "experts_per_token": met if count else 0}


def labels(f: Fields) -> int:
    """Classes of a classifier: as many as id2label names, or num_labels, or 2. Errors: Unreadable."""
    names = f.value("id2label")
    if isinstance(names, dict) and names:
        return len(names)
    if names is not None and not isinstance(names, dict):
        raise f.wrong("id2label", "give an object with one name for each class")
    if f.given.get("num_labels") is not None:
        return f.count("num_labels")
    f.assume("num_labels", 2)
    return 2


def side(f: Fields, name: str) -> int:
    """One side of a square, given as a number or as two equal ones. Errors: Unreadable."""
    value = f.value(name)
    if isinstance(value, list):
        if len(value) != 2 or value[0] != value[1]:
            raise f.wrong(name, "only squares are known: give one number")
        return Fields(f.file, {name: value[0]}, {}).count(name, most=10**6)
    return f.count(name, most=10**6)


def stages(f: Fields) -> tuple[list[int], list[int]]:
    """Channels of each stage, and its layers. Errors: Unreadable, Impossible."""
    found: list[list[int]] = []
    for name in ("hidden_sizes", "depths"):
        value = f.value(name)
        if not isinstance(value, (list, tuple)) or not 0 < len(value) < 10:
            raise f.wrong(name, "give a list with one number for each of at most nine stages")
        if name not in f.given:
            f.assume(name, ", ".join(str(number) for number in value))
        found.append([Fields(f.file, {name: number}, {}).count(name, most=10**6) for number in value])
    widths, depths = found
    if len(widths) != len(depths):
        raise Impossible(f"{f.file}: hidden_sizes has {len(widths)} entries, depths {len(depths)}; give as many")
    return widths, depths


def kinds_of_stages(depths: list[int]) -> tuple[str, ...]:
    """The kind of each layer: its stage, and whether it is the first there."""
    return tuple(f"stage {i}" + ("" if j else ", first") for i, count in enumerate(depths, 1) for j in range(count))


def refuse(f: Fields, name: str, why: str) -> None:
    """A switch that makes another network of it. Errors: Impossible."""
    if f.flag(name):
        raise Impossible(f"{f.file}: {name} is true: {why}, which peakmem does not know; set it to false")


def architecture(f: Fields) -> str:
    """The first class that the file names, or an empty word. Errors: Unreadable."""
    names = f.given.get("architectures")
    if names is None or names == []:
        return ""
    if not isinstance(names, list) or not isinstance(names[0], str):
        raise Unreadable(f"{f.file}: architectures is {printable(names, 40)}; give a list of class names")
    return names[0]
