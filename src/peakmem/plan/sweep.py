"""Many settings at once: peaks as arrays. Needs NumPy: `pip install peakmem[sweep]`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peakmem.errors import Impossible, Missing
from peakmem.estimate import named, program_of
from peakmem.estimate.envelope import envelope
from peakmem.estimate.replay import ROUNDING, size, value
from peakmem.estimate.settings import sizes_of, structure_of
from peakmem.estimate.structure import Structure
from peakmem.immutable import replace
from peakmem.model import Model
from peakmem.setup import FIELDS, Setup

if TYPE_CHECKING:
    import numpy as np

LARGEST = 20_000_000
SIZES = ("layers", "hidden", "feed_forward", "vocabulary", "heads", "kv_heads")
PIECE = 65_536  # settings per matrix product: keeps the intermediate in the cache of a core


def sweep(model: str | Path | Model, axes: Mapping[str, Sequence[int]], **settings: Any) -> np.ndarray[Any, Any]:
    """The peak in bytes (tensors) for every setting of the axes, which are arrays of one length.

    axes: whole-numbered rows of the field table, or dimensions of the model, by name; settings: the rest, as for
    `estimate`. Errors: Impossible (axes of different lengths, too many settings), Missing (no NumPy).
    """
    try:
        import numpy as np
    except ImportError:
        raise Missing("sweeps need NumPy: pip install 'peakmem[sweep]'") from None
    found = model if isinstance(model, Model) else named(model)
    columns = {name: np.asarray(column, dtype=np.int64) for name, column in axes.items()}
    count = checked_axes(columns, found)
    base = Setup.of(**settings)
    result = np.empty(count, dtype=np.int64)
    for rows, structure, counts in groups(found, base, columns, count):
        numbers = numbers_of(found, base, {name: column[rows] for name, column in columns.items()})
        numbers |= counts if "layers" not in columns else {"n": numbers["layers"]}
        result[rows] = peaks(structure, numbers, len(rows))
    return result


def checked_axes(columns: Mapping[str, Any], model: Model) -> int:
    """The length that all axes share."""
    lengths = {name: len(column) for name, column in columns.items()}
    if "layers" in columns and model.layer_kinds:
        raise Impossible(f"{model.name}: its layers differ from each other, so their number is no axis")
    if len(set(lengths.values())) != 1:
        raise Impossible(f"axes of a sweep have one length; given: {lengths}")
    count = next(iter(lengths.values()))
    if count > LARGEST:
        raise Impossible(f"{count:,} settings are more than a sweep takes ({LARGEST:,}); use fewer values")
    for name, column in columns.items():
        if name in SIZES:
            low, high = 1, 10**9
        elif name in FIELDS and FIELDS[name]["type"] is int:
            low, high = FIELDS[name]["least"], FIELDS[name]["most"]
        else:
            allowed = [row for row, field in FIELDS.items() if field["type"] is int] + list(SIZES)
            raise Impossible(f"{name!r} is no axis of a sweep; these are: {', '.join(allowed)}")
        if count and not (low <= column.min() and column.max() <= high):
            raise Impossible(f"axis {name} goes from {column.min()} to {column.max()}; allowed: {low:g} to {high:g}")
    return count


def groups(model: Model, base: Setup, columns: Mapping[str, Any], count: int) -> Any:
    """Rows of equal structure: what a structure asks of numbers is whether they are one, small, odd, or windowed."""
    import numpy as np

    marks = np.zeros(count, dtype=np.int64)
    for name, column in columns.items():
        for question, answers in questions(name, column, model):
            marks = marks * answers + question
    kinds, marks = np.unique(marks, return_inverse=True)
    order = np.argsort(marks.astype(np.int16) if len(kinds) < 2**15 else marks, kind="stable")
    bounds = np.cumsum(np.bincount(marks))[:-1]
    for rows in np.split(order, bounds):
        if len(rows):
            first = {name: int(column[rows[0]]) for name, column in columns.items()}
            structure, numbers = structure_of(*at(model, base, first))
            yield rows, structure, {s.letter: numbers[s.letter] for s in structure.segments}


def questions(name: str, column: Any, model: Model) -> list[tuple[Any, int]]:
    """What a structure depends on, as small whole numbers, and how many answers each has."""
    import numpy as np

    asked = [(np.minimum(column, 3), 4)]
    if name == "sequence":
        asked.append((column % 8 != 0, 2))
        if model.window:
            asked += [(column >= model.window, 2), (column + 1 >= model.window, 2)]
    if name in ("hidden", "heads", "kv_heads"):
        asked.append((column % 8 != 0, 2))
    return asked


def at(model: Model, base: Setup, values: Mapping[str, int]) -> tuple[Model, Setup]:
    """One row of the axes as a model and its settings."""
    sizes = {name: number for name, number in values.items() if name in SIZES}
    return model.changed(**sizes), replace(base, **{n: v for n, v in values.items() if n not in sizes})


def numbers_of(model: Model, base: Setup, columns: Mapping[str, Any]) -> dict[str, Any]:
    """Every letter: a number, or a column where it follows an axis."""
    sizes = {name: column for name, column in columns.items() if name in SIZES}
    setup = replace(base, **{name: column for name, column in columns.items() if name not in sizes})
    changed = model.changed(**sizes)
    return sizes_of(changed, setup) | {"layers": changed.layers}


def peaks(structure: Structure, numbers: Mapping[str, Any], count: int) -> Any:
    """The largest sum of the envelope, for each row. Exact: every product stays below 2^53."""
    import numpy as np

    program = program_of(structure)
    sums = envelope(program)
    terms = sorted({term for total in sums for term, _ in total})
    matrix = np.zeros((len(sums), len(terms)))
    for i, total in enumerate(sums):
        for term, times in total:
            matrix[i, terms.index(term)] = times
    result = np.empty(count, dtype=np.int64)
    for start in range(0, count, PIECE):
        piece = {k: v[start:start + PIECE] if isinstance(v, np.ndarray) else v for k, v in numbers.items()}
        width = min(PIECE, count - start)
        sizes = {key: -(-size(program.keys[key], piece) // ROUNDING) * ROUNDING for key, _ in terms}
        values = np.empty((len(terms), width))
        for row, (key, letter) in enumerate(terms):
            values[row] = sizes[key] * (value(letter, piece) if letter else 1)
        result[start:start + width] = (matrix @ values).max(axis=0)
    return result
