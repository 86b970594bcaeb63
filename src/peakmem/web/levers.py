"""Every lever on one run: what it does where it is off, what it has done where it is on, why where it does nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from peakmem.errors import PeakmemError
from peakmem.ledger import KINDS, Ledger
from peakmem.model import Model
from peakmem.plan.headroom import headroom
from peakmem.plan.levers import LEVERS, Lever, try_levers
from peakmem.quantity import gib
from peakmem.setup import Setup
from peakmem.web.told import mistake, one_line, parts

Estimate = Callable[..., Ledger]


def levers(model: Model, settings: Mapping[str, Any], estimated: Estimate) -> dict[str, Any]:
    """`before`, `tried`, and `levers`: each with its `state`, tried | taken | nothing | apart."""
    seen: dict[frozenset[tuple[str, str]], Ledger] = {}

    def key(changed: Mapping[str, Any]) -> frozenset[tuple[str, str]]:
        return frozenset((name, str(value)) for name, value in changed.items())

    def measure(changed: Mapping[str, Any]) -> tuple[int, bool]:
        ledger = estimated(model, changed)
        seen[key(changed)] = ledger
        gpu = settings.get("gpu")
        # What the tensors alone exceed needs no run of the allocator.
        fits = not gpu or (headroom(ledger, gpu).fits and headroom(estimated(model, changed, True), gpu).fits)
        return ledger.totals.tensors, fits

    before = measure(settings)[0]
    now = seen[key(settings)]
    tried, together = try_levers(settings, measure)
    made = []
    for change in (*tried, *([together] if together else [])):
        words = change.flags.replace("--", "").split()
        pairs = {name.replace("-", "_"): value for name, value in zip(words[::2], words[1::2], strict=True)}
        then = seen.get(key({**settings, **pairs}))
        made.append({**vars(change), "settings": pairs, "parts": parts(change.refused), **shape(then),
                     **moved(now, then)})
    setup = Setup.of(**settings)
    names = {change.lever for change in tried}
    rows = [{"name": row.name, "shrinks": row.shrinks, "costs": row.costs, "source": row.source, "flag": row.flag,
             **({"state": "tried"} if row.name in names else idle(model, settings, setup, row, estimated, now))}
            for row in LEVERS]
    return {"before": before, **shape(now), "tried": made, "levers": rows}


def idle(model: Model, settings: Mapping[str, Any], setup: Setup, lever: Lever, estimated: Estimate,
         now: Ledger) -> dict[str, Any]:
    """A lever that is not offered: it is on (the ledger without it), is worth nothing (with it), or stands apart."""
    undone, changed = lever.undo(setup), lever.change(setup)
    if not undone and not changed:
        why = ("the batch is one sequence" if lever.name == "smaller batch" else "in training only"
               if setup.run == "inference" else f"nothing for it to change, with {said(lever, setup)}")
        return {"state": "apart", "why": why}
    try:
        ledger = estimated(model, {**settings, **(undone or changed)})
    except PeakmemError as error:
        return {"state": "taken", "refused": one_line(str(error)), "parts": mistake(error)["parts"]}
    sides = (ledger, now) if undone else (now, ledger)
    return {"state": "taken" if undone else "nothing", "bytes": ledger.totals.tensors, **shape(ledger), **moved(*sides)}


def said(lever: Lever, setup: Setup) -> str:
    """The setting that a lever would change, as it is."""
    name = lever.flag.split()[0].removeprefix("--").replace("-", "_")
    return f"{name.replace('_', ' ')} {getattr(setup, name)}"


def shape(ledger: Ledger | None) -> dict[str, Any]:
    """Of what the peak is made, when it is, the most that each kind comes to, and what lies beside the device."""
    if ledger is None:
        return {"by_kind": {}, "moment": "", "largest": {}, "host": 0, "disk": 0}
    return {"by_kind": dict(ledger.peak.by_kind), "moment": ledger.peak.moment,
            "host": ledger.totals.host, "disk": ledger.totals.disk,
            "largest": {kind: one.largest for kind, one in ledger.kinds.items()}}


def moved(before: Ledger, after: Ledger | None) -> dict[str, Any]:
    """Kinds that `falls` and `rises` at most as (kind, bytes, bytes then), those that change most first; those whose
    figures read the same are left out. `elsewhere`: the moment of the peak where that is another phase or layer."""
    if after is None:
        return {"falls": [], "rises": [], "elsewhere": ""}
    old, new = ({kind: one.largest for kind, one in ledger.kinds.items()} for ledger in (before, after))
    sizes = [(kind, old.get(kind, 0), new.get(kind, 0)) for kind in KINDS]
    ranked = sorted((row for row in sizes if gib(row[1]) != gib(row[2])), key=lambda row: -abs(row[2] - row[1]))
    places = [ledger.peak.moment.split("/")[:2] for ledger in (before, after)]
    return {"falls": [row for row in ranked if row[2] < row[1]], "rises": [row for row in ranked if row[2] > row[1]],
            "elsewhere": after.peak.moment if places[0] != places[1] else ""}
