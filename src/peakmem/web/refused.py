"""Which choices of a setting would be refused in this run, and why: the page does not offer them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from peakmem.errors import PeakmemError
from peakmem.model import Model
from peakmem.setup import FIELDS, Setup
from peakmem.web.told import Parts, parts

TRIED: Mapping[str, tuple[Any, ...]] = {
    **{name: row["choices"] for name, row in FIELDS.items() if row["choices"] and name != "run"},
    "tensor_parallel": (2,), "prefill_chunk": (1,), "lora_rank": (8,)}
"""Of a number, one that stands for all but the default."""


def refused(model: Model, settings: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """By setting and choice; each choice is tried by itself, and nothing is interpreted."""
    from peakmem.estimate.settings import structure_of

    found: dict[str, dict[str, str]] = {}
    for name, choices in TRIED.items():
        for choice in choices:
            try:
                structure_of(model, Setup.of(**{**settings, name: choice}))
            except PeakmemError as error:
                found.setdefault(name, {})[str(choice)] = " ".join(str(error).split())
    return found


def alone(found: Mapping[str, Mapping[str, str]], settings: Mapping[str, Any]) -> dict[str, Parts]:
    """Settings of which nothing but the present value is left, and why the first of the others is not."""
    made = {}
    for name, errors in found.items():
        default = str(FIELDS[name]["default"])
        now = str(settings.get(name, default))
        others = [choice for choice in map(str, FIELDS[name]["choices"]) if choice != now]
        if now not in errors and (all(choice in errors for choice in others) if others else now == default):
            made[name] = parts(re.sub(r"^--\S+ \S+: ", "", next(iter(errors.values()))))
    return made
