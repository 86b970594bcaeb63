"""What the page's own figures show, read from ledgers of small networks; and the tables behind the form."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import cache
from typing import Any

from peakmem.ledger import KINDS, Ledger
from peakmem.quantity import gib
from peakmem.web.told import parts

SEVEN_BILLION = 7 * 10**9
SIDE = 1024  # of the matrices of the small network
PARTS = {"": "weight", "gradient": "gradient", "master": "master weight", "exp_avg": "m, mean of gradients",
         "exp_avg_sq": "v, mean of squares", "momentum_buffer": "momentum", "max_exp_avg_sq": "largest v so far",
         "square_avg": "mean of squares", "sum": "sum of squares", "state1": "m, mean of gradients",
         "state2": "v, mean of squares"}
MATRIX = "layers.*.W2.weight"


def settled(**settings: Any) -> Ledger:
    """The three-layer network after its first step."""
    from peakmem.architectures.three_layers import model
    from peakmem.estimate import estimate

    return estimate(model(SIDE), **settings)


@cache
def cells() -> dict[str, Any]:
    """Bytes of one parameter, by part, for every precision and optimizer: one matrix of the three-layer network."""
    from peakmem.errors import PeakmemError
    from peakmem.tables.optimizers import OPTIMIZERS
    from peakmem.tables.precisions import PRECISIONS

    rows = []
    for precision in PRECISIONS:
        for optimizer in OPTIMIZERS:
            try:
                ledger = settled(precision=precision, optimizer=optimizer)
            except PeakmemError:
                continue
            parts = parts_of(ledger)
            total = sum((size for *_, size in parts), Fraction(0))
            rows.append({"precision": precision, "optimizer": optimizer, "total": decimal(total),
                         "parts": [{"name": name, "kind": kind, "bytes": decimal(size),
                                    "cells": max(1, round(size))} for name, kind, size in parts],
                         "seven": gib(int(total * SEVEN_BILLION), 1),
                         "seven_gb": f"{float(total) * SEVEN_BILLION / 1e9:,.0f} GB"})
    return {"rows": rows, "precisions": {row.name: row.title for row in PRECISIONS.values()},
            "optimizers": {row.name: row.title for row in OPTIMIZERS.values()}}


def parts_of(ledger: Ledger) -> list[tuple[str, str, Fraction]]:
    """What one parameter of the middle matrix keeps: name, kind, bytes."""
    sizes: dict[tuple[str, str], Fraction] = {}
    for line in ledger.lines:
        if line.name == "gradient buffer":
            sizes["gradient, resident", line.kind] = Fraction(line.bytes, 3 * SIDE * SIDE)
        if not line.name.startswith(MATRIX) or line.kind not in ("weights", "gradients", "optimizer_state"):
            continue
        if line.kind == "gradients" and line.freed.startswith("backward"):
            continue  # added to the resident buffer and gone
        ending = line.name.removeprefix(MATRIX).strip(" /")
        name = PARTS.get(ending.split(" ")[0], ending.replace("_", " "))
        if line.kind == "weights" and ending:
            name = "16-bit copy"
        each = Fraction(line.bytes * line.count, SIDE * SIDE)
        if "scale" in ending:
            name = PARTS.get(ending.split(" ")[0].split("/")[0], name)
        key = name, line.kind
        sizes[key] = sizes.get(key, Fraction(0)) + each
    order = {"weights": 0, "optimizer_state": 1, "gradients": 2}
    found = [(name, kind, size) for (name, kind), size in sizes.items()]
    return sorted(found, key=lambda part: order[part[1]])


def decimal(size: Fraction) -> str:
    """`2`, `1.02`: no more digits than say something."""
    return f"{float(size):.2f}".rstrip("0").rstrip(".") if size >= Fraction(1, 100) else f"{float(size):.3f}"


@cache
def growth() -> dict[str, Any]:
    """The four kinds of a small GPT, and what doubling one thing does to each."""
    from peakmem.estimate import estimate
    from peakmem.tables.models import custom

    base: dict[str, Any] = {"batch": 4, "sequence": 1024, "attention": "flash"}
    cases: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
             ("as it is", {}, {}), ("batch × 2", {}, {"batch": 8}), ("sequence × 2", {}, {"sequence": 2048}),
             ("layers × 2", {"layers": 24}, {}), ("width × 2", {"hidden": 1536, "heads": 24}, {}),
             ("batch × 250", {}, {"batch": 1000}))
    made: list[dict[str, Any]] = []
    first: Mapping[str, int] = {}
    for name, sizes, settings in cases:
        model, run = custom(**sizes), {**base, **settings}
        ledger = estimate(model, **run)
        kinds = {kind: value.largest for kind, value in ledger.kinds.items()}
        first = first or kinds
        made.append({
            "name": name, "words": f"{model.layers} layers of width {model.hidden:,}, batch {run['batch']:,} × "
                                   f"{run['sequence']:,} tokens", "kinds": kinds, "parameters": ledger.parameters.total,
            "times": {kind: f"{size / first[kind]:.2f}".rstrip("0").rstrip(".") for kind, size in kinds.items()
                      if first.get(kind)},
            "chart": [{"moment": row.moment, "by_kind": dict(row.peak_by_kind)} for row in ledger.chart]})
    return {"cases": made, "settings": base}


TITLES = {"start": "before the step", "F1": "forward, layer 1", "F2": "forward, layer 2", "F3": "forward, layer 3",
          "B3": "backward, layer 3", "B2": "backward, layer 2", "B1": "backward, layer 1", "step": "optimizer step",
          "clear": "gradients cleared"}
MOMENTS = {
    "start": "The weights and the optimizer's memory are there from the step before, and the next batch has arrived.",
    "F1": "Layer 1 multiplies, then applies ReLU. The product z1 is needed by nobody else; a1 stays for backward.",
    "F2": "The same in layer 2: one more activation stays.",
    "F3": "And in layer 3. Forward has freed next to nothing: every activation waits for its layer's turn.",
    "B3": "The error arrives at layer 3. Two products leave: the gradient of W3, and the error for layer 2. Both are "
          "new memory, and only then can a3 go.",
    "B2": "Layer 2 does the same. What it frees it has just spent: the height of B3 is reached once more.",
    "B1": "Layer 1 needs no error for the input. All activations are gone, all gradients are there.",
    "step": "The optimizer reads the gradients and changes weights and its own memory in place: nothing is allocated.",
    "clear": "The gradients are dropped, and we are back where the step began.",
}


@cache
def three_layers() -> dict[str, Any]:
    """Every tensor of the three-layer network at the end of every moment, and what each moment made and freed."""
    from peakmem.architectures.three_layers import model
    from peakmem.estimate.interpret import interpret
    from peakmem.estimate.kinds import kinds_of
    from peakmem.estimate.settings import structure_of
    from peakmem.estimate.unrolled import steps
    from peakmem.estimate.walk import Walk
    from peakmem.setup import Setup

    setup = Setup.of(batch=4096)
    ledger = settled(batch=4096)
    structure, numbers = structure_of(model(SIDE), setup)
    tape = interpret(structure)
    walk = Walk(tape, numbers, [KINDS.index(kind) for kind in kinds_of(tape)])
    names = [row.moment for row in ledger.chart]
    made: dict[str, list[int]] = {name: [] for name in names}
    freed: dict[str, list[int]] = {name: [] for name in names}
    alive: set[int] = set()
    at_end: dict[str, set[int]] = {}
    labels: dict[int, str] = {}
    for step in steps(walk, 3):
        if step.row not in made:
            continue
        if step.born:
            labels[step.storage] = label_of(tape.records[step.storage].name, step.moment)
            alive.add(step.storage)
            made[step.row].append(step.storage)
        else:
            alive.discard(step.storage)
            freed[step.row].append(step.storage)
        at_end[step.row] = set(alive)
    for before, name in zip(names, names[1:]):
        at_end.setdefault(name, at_end[before])  # a moment without events
    kinds = {i: KINDS[walk.kinds[i]] for i in labels}
    rows: dict[str, dict[str, Any]] = {}
    for i in sorted(labels, key=lambda i: ORDER.index(grouped(labels[i]))):
        row = rows.setdefault(grouped(labels[i]), {"name": grouped(labels[i]), "kind": kinds[i], "bytes": 0,
                                                   "cells": ["" for _ in names]})
        row["bytes"] += walk.sizes[i] if grouped(labels[i]) == "optimizer state" else walk.sizes[i] - row["bytes"]
        for at, name in enumerate(names):
            if i in at_end[name]:
                row["cells"][at] = "held"
            elif i in made[name] and not row["cells"][at]:
                row["cells"][at] = "passing"

    def listed(storages: list[int]) -> list[dict[str, Any]]:
        groups: dict[str, dict[str, Any]] = {}
        for i in storages:
            entry = groups.setdefault(labels[i], {"name": labels[i], "kind": kinds[i], "bytes": 0})
            entry["bytes"] += walk.sizes[i]
        return [entry for entry in groups.values() if entry["bytes"] > 4096]

    moments = [{"moment": row.moment, "title": TITLES[row.moment], "words": MOMENTS[row.moment], "end": row.end,
                "peak": row.peak, "made": listed(made[row.moment]), "freed": listed(freed[row.moment])}
               for row in ledger.chart]
    return {"moments": moments, "tensors": [row for row in rows.values() if row["bytes"] > 4096],
            "peak": {"bytes": ledger.peak.bytes, "moments": [row.moment for row in ledger.chart
                                                             if row.peak == ledger.peak.bytes]}}


ORDER = ["W1", "W2", "W3", "optimizer state", "input", "a1", "a2", "a3", "z", "errors", "∇W3", "∇W2", "∇W1", "loss"]


def label_of(name: str, moment: str) -> str:
    """`layers.*/relu` born in layers.1 is a2; the error that it is given back in layers.2 is ∂a2."""
    layer = moment.partition("layers.")[2][:1]
    number = int(layer) + 1 if layer.isdigit() else 0
    if name == "input/input":
        return "input"
    if "/master" in name or "/exp" in name:
        return "optimizer state"
    matrix = name.removeprefix("layers.*.")[:2]
    if name.endswith(".weight gradient"):
        return f"∇{matrix}"
    if name.endswith(".weight"):
        return matrix
    if name.endswith("relu gradient"):
        return f"∂a{number - 1}"
    if name.endswith("output gradient"):
        return f"δ{number}"
    return f"a{number}" if name.endswith("relu") else f"z{number}" if name.endswith("/output") else "loss"


def grouped(label: str) -> str:
    """The row of the grid: what only passes through shares one."""
    return "z" if label[0] == "z" else "errors" if label[0] in "δ∂" else label


@cache
def tables() -> dict[str, Any]:
    """What the form offers: settings, sizes, models, GPUs, optimizers; and names of kinds and letters."""
    from peakmem.quantity import LEGEND
    from peakmem.setup import FIELDS
    from peakmem.tables.glossary import WORDS
    from peakmem.tables.gpus import gpus
    from peakmem.tables.models import presets
    from peakmem.tables.optimizers import OPTIMIZERS
    from peakmem.tables.precisions import PRECISIONS
    from peakmem.tables.resize import SIZES
    from peakmem.version import __version__
    from peakmem.views.colours import COLOURS

    fields = [{"name": name, "type": row["type"].__name__, "default": list(row["default"]) if row["many"] else
               row["default"], "help": row["help"], "unit": row["unit"], "choices": list(row["choices"]),
               "parts": parts(row["help"].partition(": `peakmem list")[0]),
               "least": row["least"], "most": row["most"], "group": row["group"], "many": row["many"]}
              for name, row in FIELDS.items()]
    return {
        "version": __version__, "fields": fields, "sizes": [*SIZES, "tied"],
        "models": [{"name": row.name, "parameters": row.parameters, "family": row.family, "aliases": list(row.aliases)}
                   for row in presets().values()],
        "gpus": [{"name": row.name, "gb": f"{row.memory_gb:g}"} for row in gpus()],
        "optimizers": {row.name: row.title for row in OPTIMIZERS.values()},
        "precisions": {row.name: row.title for row in PRECISIONS.values()},
        "kinds": {kind: {"title": look.title, "letter": look.letter} for kind, look in COLOURS.items()},
        "legend": dict(LEGEND), "words": dict(WORDS)}
