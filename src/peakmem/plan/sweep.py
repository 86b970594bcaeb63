"""Many settings at once: peaks as arrays. Needs NumPy, the extra `sweep`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peakmem.errors import Impossible, Missing
from peakmem.estimate import named, program_of
from peakmem.estimate.envelope import envelope
from peakmem.estimate.replay import ROUNDING, Program, size, value
from peakmem.estimate.settings import sizes_of, structure_of
from peakmem.estimate.structure import Structure
from peakmem.immutable import replace
from peakmem.model import Model
from peakmem.setup import FIELDS, Setup
from peakmem.tables.resize import SIZES, resize

if TYPE_CHECKING:
    import numpy as np

LARGEST = 20_000_000
EXACT = 2**53  # bytes: doubles count whole numbers up to here
PIECE = 65_536  # settings per matrix product: keeps the intermediate in the cache of a core


def sweep(model: str | Path | Model, axes: Mapping[str, Sequence[int]], **settings: Any) -> np.ndarray[Any, Any]:
    """The peak in bytes (tensors) for every setting of the axes, which are arrays of one length.

    axes: whole-numbered rows of the field table, or sizes of the model, by name; settings: the rest, as for
    `estimate`. Batch, sequence and accumulation are counted a column at a time; every other axis costs about a
    millisecond for each of its values. Errors: Impossible (axes of different lengths, too many settings, or what
    `estimate` refuses), Missing (no NumPy).
    """
    try:
        import numpy as np
    except ImportError:
        raise Missing("sweeps need NumPy", "sweep") from None
    found = model if isinstance(model, Model) else named(model)
    columns = {name: np.asarray(column, dtype=np.int64) for name, column in axes.items()}
    count = checked_axes(columns)
    base = Setup.of(**settings)
    result = np.empty(count, dtype=np.int64)
    wide = as_columns(found, base)
    for rows, values in combinations({name: column for name, column in columns.items() if name not in wide}, count):
        sizes = {name: number for name, number in values.items() if name in SIZES}
        sized = resize(found, **sizes) if sizes else found
        setup = replace(base, **{name: number for name, number in values.items() if name not in sizes})
        parts = {name: column[rows] for name, column in columns.items() if name in wide}
        for group in groups(sized, setup, parts, len(rows)):
            result[rows[group]] = peaks(sized, setup, {name: part[group] for name, part in parts.items()}, len(group))
    return result


def as_columns(model: Model, setup: Setup) -> tuple[str, ...]:
    """Axes on which every letter is a product or a sum, so that arrays can stand for numbers."""
    if setup.run == "inference":
        return ("batch",)
    if setup.loss == "fused":  # its pieces are powers of two
        return ("accumulation",)
    grows = setup.loss == "chunked" or "av" in model.sizes or (model.positions and not model.longest)
    return ("batch", "accumulation") if grows else ("batch", "accumulation", "sequence")


def combinations(columns: Mapping[str, Any], count: int) -> Iterator[tuple[Any, dict[str, int]]]:
    """Rows that agree in all of these columns, and what they agree in."""
    import numpy as np

    if not columns:
        yield np.arange(count), {}
        return
    found, places = np.unique(np.stack(list(columns.values())), axis=1, return_inverse=True)
    order = np.argsort(places.ravel(), kind="stable")
    bounds = np.cumsum(np.bincount(places.ravel()))[:-1]
    for rows, values in zip(np.split(order, bounds), found.T):
        yield rows, {name: int(value) for name, value in zip(columns, values)}


def checked_axes(columns: Mapping[str, Any]) -> int:
    """The length that all axes share."""
    lengths = {name: len(column) for name, column in columns.items()}
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


def groups(model: Model, base: Setup, columns: Mapping[str, Any], count: int) -> Iterator[Any]:
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
        ends = {structure_of(model, at(base, columns, row))[0] for row in (rows[0], rows[len(rows) // 2], rows[-1])}
        if len(ends) == 1:
            yield rows
        else:
            yield from rows.reshape(-1, 1)


def questions(name: str, column: Any, model: Model) -> list[tuple[Any, int]]:
    """What a structure depends on, as small whole numbers, and how many answers each has."""
    import numpy as np

    asked = [(np.minimum(column, 3), 4)]
    if name == "sequence":
        step = 16 if "position_bias" in model.switches else 8
        asked.append((column % 8 != 0, 2))
        asked.append((column % step != 0, 2))
        if model.window:
            asked += [(column >= model.window, 2), (column + 1 >= model.window, 2)]
    return asked


def at(base: Setup, columns: Mapping[str, Any], row: int) -> Setup:
    """The settings of one row."""
    return replace(base, **{name: int(column[row]) for name, column in columns.items()})


def numbers_of(model: Model, base: Setup, columns: Mapping[str, Any]) -> tuple[Structure, dict[str, Any]]:
    """A structure, and every letter: a number, or a column where it follows an axis."""
    structure, numbers = structure_of(model, at(base, columns, 0))
    return structure, numbers | {letter: number for letter, number in sizes_of(model, replace(base, **columns)).items()
                                 if not isinstance(number, int)}


def peaks(model: Model, base: Setup, columns: Mapping[str, Any], count: int) -> Any:
    """The largest sum of the envelope, for each row. Exact, as long as no sum reaches 2^53: see `exact`."""
    import numpy as np

    structure, numbers = numbers_of(model, base, columns)
    program = program_of(structure)
    sums = envelope(program)
    exact(program, sums, numbers)
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


def exact(program: Program, sums: Sequence[Any], numbers: Mapping[str, Any]) -> None:
    """Refuse what doubles cannot count to the byte: asked of the largest number on each axis, in Python's integers."""
    corner = {letter: int(column.max()) if hasattr(column, "max") else column for letter, column in numbers.items()}
    most = max(sum(abs(times) * size(program.keys[key], corner) * (value(letter, corner) if letter else 1)
                   for (key, letter), times in total) for total in sums)
    if most >= EXACT:
        raise Impossible(f"the largest setting of the sweep holds {most / 2**50:,.0f} PiB; a sweep counts to the byte "
                         "below 8 PiB: use smaller values, or estimate that one alone")
