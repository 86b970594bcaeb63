"""Peaks for every combination of some settings. How many that are is known before the first is counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from math import prod
from typing import Any

from peakmem.errors import Impossible, UnknownName, printable
from peakmem.ledger import Ledger
from peakmem.model import Model
from peakmem.setup import FIELDS, checked

MOST = 1000
"""Settings in one answer. More of them at once: peakmem.plan.sweep, in Python."""
AXES = tuple(name for name, row in FIELDS.items() if not row["many"])


def axis(name: str, given: Any) -> tuple[int, list[Any] | range]:
    """How many values an axis has, and the values. Errors: UnknownName, Impossible."""
    if name not in AXES:
        raise UnknownName("axis", name, AXES)
    if isinstance(given, list):
        if not given:
            raise Impossible(f"axis {name}: no values")
        return len(given), given
    if not isinstance(given, dict) or not {"from", "to"} <= set(given) <= {"from", "to", "step"}:
        raise Impossible(f"axis {name} {printable(given, 40)}: give a list of values, or from, to and step")
    if FIELDS[name]["type"] is not int:
        raise Impossible(f"axis {name}: only whole numbers go from, to; give a list of values")
    start, end, step = (given["from"], given["to"], given.get("step", 1))
    for part, value in (("from", start), ("to", end), ("step", step)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise Impossible(f"axis {name}: {part} {printable(value, 40)} is not a whole number")
    if step < 1:
        raise Impossible(f"axis {name}: step {printable(step, 40)}: give 1 or more")
    if end < start:
        raise Impossible(f"axis {name} goes from {printable(start, 40)} down to {printable(end, 40)}: give the smaller "
                         "number first")
    return (end - start) // step + 1, range(start, end + 1, step)


def sweep(model: Model, settings: Mapping[str, Any], axes: Any,
          measure: Callable[[Model, Mapping[str, Any]], Ledger]) -> dict[str, Any]:
    """`count`, `axes` as (name, values), and `peaks` in bytes of tensors, the last axis fastest; null: impossible.

    Errors: UnknownName, Impossible: among them, more than MOST settings.
    """
    if not isinstance(axes, dict) or not axes:
        raise Impossible("axes of a sweep: give an object of names and values")
    made = {name: axis(name, given) for name, given in axes.items()}
    count = prod(size for size, _ in made.values())
    if count > MOST:
        raise Impossible(f"{count:,} settings are more than one answer takes ({MOST:,}); give fewer values"
                         if count < 10**30 else "more settings than one answer takes; give fewer values")
    values = {name: [checked(name, value) for value in given] for name, (_, given) in made.items()}
    for name, column in values.items():
        if name in settings:
            raise Impossible(f"{name} is an axis and a setting: leave one out")
        if len(set(column)) != len(column):
            raise Impossible(f"axis {name} has a value twice")
    peaks: list[int | None] = []
    refused = ""
    for point in product(*values.values()):
        try:
            peaks.append(measure(model, {**settings, **dict(zip(values, point))}).totals.tensors)
        except Impossible as error:
            peaks.append(None)
            refused = refused or str(error)
    return {"count": count, "axes": [[name, column] for name, column in values.items()], "peaks": peaks,
            "refused": refused}
