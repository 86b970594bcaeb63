"""One function from JSON to JSON: what the page, the server and the browser's own Python ask.

docs/page-api.md describes requests and answers. The same request gives the same bytes wherever it is asked.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from typing import Any

from peakmem.errors import Impossible, PeakmemError, UnknownName, printable
from peakmem.ledger import KINDS, Ledger
from peakmem.model import Model
from peakmem.web.largest import largest, reasons
from peakmem.web.request import model_of, only, parsed, settings_of, whole
from peakmem.web.told import mistake, parts

RUN = ("ask", "model", "config", "sizes", "settings")
MOST_LINES = 5000
ONE_AT_A_TIME = threading.Lock()  # a tape is written into by whatever is interpreted in the process
DEEPEST = 10**6  # layers: more of them are refused here, where one answer must not keep the others waiting


def estimate_json(text: str) -> str:
    """Answer one request. A mistake in it is {"error": one line}; nothing is raised, whatever comes in."""
    request = None
    try:
        with ONE_AT_A_TIME:
            request = parsed(text)
            found: Any = answer(request)
    except PeakmemError as error:
        found = mistake(error, request)
    except (RecursionError, MemoryError, OverflowError, ArithmeticError) as error:
        found = mistake(PeakmemError(f"this is beyond what can be counted ({type(error).__name__}); "
                                     "give smaller sizes"))
    except Exception as error:  # a bug of ours must not take the page or the server with it
        found = mistake(PeakmemError(f"peakmem failed at this ({type(error).__name__}); please report the request"))
    return json.dumps(found, allow_nan=False, separators=(",", ":"))


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """The same between plain containers. Errors: PeakmemError."""
    ask = request.get("ask", "estimate")
    if not isinstance(ask, str) or ask not in ASKS:
        raise UnknownName("ask", ask, ASKS)
    return ASKS[ask](request)


def estimated(model: Model, settings: Mapping[str, Any], allocator: bool = False) -> Ledger:
    """allocator: also run PyTorch's allocator, which takes a hundred times as long."""
    from peakmem.estimate import estimate

    if model.layers > DEEPEST:
        raise Impossible(f"--layers {model.layers:,}: here at most {DEEPEST:,}")
    return estimate(model, allocator=allocator and bool(settings.get("gpu")), **settings)


def estimate(request: Mapping[str, Any]) -> dict[str, Any]:
    """A ledger with its largest lines, the room on the GPU, and what another implementation would hold."""
    only(request, *RUN, "lines", "timeline", "allocator")
    model, settings = model_of(request), settings_of(request)
    full = request.get("allocator") is not False
    ledger = estimated(model, settings, full)
    found = ledger.as_json()
    ordered = sorted(ledger.lines, key=lambda line: (-line.bytes_at_peak, -line.bytes * line.count, line.name))
    found["lines"] = [vars(line).copy() for line in ordered[:whole(request, "lines", 12, MOST_LINES)]]
    still = idle(model, settings)
    result = {"ledger": found, **largest(ledger), "reasons": reasons(ledger), "room": room_of(ledger, settings),
              "beside": others(model, settings) if full else None, "idle": still,
              "parts": {"idle": {name: parts(why) for name, why in still.items()},
                        "notes": [parts(note) for note in ledger.notes]}}
    if request.get("timeline") is True:
        result["timeline"] = changes_of(ledger)
    return result


def idle(model: Model, settings: Mapping[str, Any]) -> dict[str, str]:
    """Settings that would change nothing, and why."""
    from peakmem.estimate.idle import idle_settings
    from peakmem.setup import Setup

    return idle_settings(model, Setup.of(**settings))


def chart(request: Mapping[str, Any]) -> dict[str, Any]:
    """Of an estimate what the picture shows, under the same names: a quarter of the time, for a slider."""
    from peakmem.ledger_json import row_as_json

    only(request, *RUN)
    model, settings = model_of(request), settings_of(request)
    ledger = estimated(model, settings)
    seen = ledger.outline
    return {"ledger": {"run": {"model": {"name": model.name}},
                       "peak": {"bytes": ledger.totals.tensors, "moment": seen.moment, "by_kind": dict(seen.by_kind)},
                       "chart": [row_as_json(row) for row in seen.chart],
                       "parameters": vars(ledger.parameters).copy()}, "room": room_of(ledger, settings)}


def room(request: Mapping[str, Any]) -> dict[str, Any]:
    """Whether it fits, with PyTorch's allocator run over the step."""
    only(request, *RUN)
    model, settings = model_of(request), settings_of(request)
    found = room_of(estimated(model, settings, True), settings)
    if found is None:
        raise Impossible("which GPU? give settings.gpu, for instance H100 or 24GiB")
    return found


def room_of(ledger: Ledger, settings: Mapping[str, Any]) -> dict[str, Any] | None:
    """The headroom on the GPU that was named, and the totals behind it."""
    if not settings.get("gpu"):
        return None
    from peakmem.plan.headroom import headroom

    room, totals = headroom(ledger, settings["gpu"]), ledger.totals
    return {"gpu": room.gpu, "fits": room.fits, "close": room.close, "spare": room.spare, "need": room.need,
            "used": room.used, "total": room.total, "context": list(room.context), "capacity": room.capacity,
            "sold": room.sold, "note": room.note, "tensors": totals.tensors, "allocated": totals.allocated,
            "reserved": totals.reserved}


def beside(request: Mapping[str, Any]) -> dict[str, Any]:
    """What a full estimate says of other implementations."""
    only(request, *RUN)
    return {"beside": others(model_of(request), settings_of(request))}


def refused(request: Mapping[str, Any]) -> dict[str, Any]:
    """Choices that this run has no room for, by setting, each with the error that it would be."""
    from peakmem.web.refused import alone, refused as tried

    only(request, *RUN)
    model, settings = model_of(request), settings_of(request)
    estimated(model, settings)
    found = tried(model, settings)
    return {"refused": found, "only": alone(found, settings)}


def others(model: Model, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the other implementations of this model would hold: the paper's block beside the real one."""
    from peakmem.architectures import CODE

    chosen, found = settings.get("implementation", "transformers"), []
    for architecture, name in CODE:
        if architecture == model.architecture and name != chosen and settings.get("run") != "inference":
            try:
                other = estimated(model, {**settings, "implementation": name})
            except PeakmemError:
                continue
            kept = other.kinds.get("activations")
            found.append({"implementation": name, "peak": other.peak.bytes, "moment": other.peak.moment,
                          "activations": kept.largest if kept else 0})
    return found


def changes_of(ledger: Ledger) -> dict[str, Any]:
    """The timeline in columns: where each moment begins, and every change of each kind as (event, bytes)."""
    moments: list[tuple[int, str]] = []
    kinds: dict[str, list[tuple[int, int]]] = {}
    last: dict[str, int] = {}
    for i, (moment, by_kind) in enumerate(ledger.timeline):
        if not moments or moments[-1][1] != moment:
            moments.append((i, moment))
        for kind in KINDS:
            amount = by_kind.get(kind, 0)
            if amount != last.get(kind, 0):
                kinds.setdefault(kind, []).append((i, amount))
                last[kind] = amount
    return {"events": len(ledger.timeline), "moments": moments, "kinds": kinds}


def fit(request: Mapping[str, Any]) -> dict[str, Any]:
    """The largest batch that fits on `settings.gpu`."""
    from peakmem.plan.fit import as_json, fit as search

    only(request, *RUN)
    settings = settings_of(request, ("batch",))
    model, gpu = model_of(request), settings.pop("gpu", "")
    if not gpu:
        raise Impossible("which GPU? give settings.gpu, for instance H100 or 24GiB")
    estimated(model, settings)
    found = as_json(search(model, gpu, **settings))
    return {key: value for key, value in found.items() if key not in ("run", "notes")}


def levers(request: Mapping[str, Any]) -> dict[str, Any]:
    """Every lever tried on this run: bytes in tensors before and after, and the fewest that make it fit together."""
    from peakmem.web.levers import levers as tried

    only(request, *RUN)
    return tried(model_of(request), settings_of(request), estimated)


def compare(request: Mapping[str, Any]) -> dict[str, Any]:
    """Two runs, `a` and `b`: phases, kinds at the peak and lines side by side."""
    from peakmem.views.compare import compared

    only(request, "ask", "a", "b")
    sides = []
    for side in ("a", "b"):
        inner = request.get(side)
        if not isinstance(inner, dict):
            raise Impossible(f"{side} {printable(inner, 40)}: give an object with model and settings")
        only(inner, *RUN[1:])
        sides.append(estimated(model_of(inner), settings_of(inner)))
    found = compared(*sides)
    return {"equal": found.equal} | {
        part: [{"name": p.name, "kind": p.kind, "a": p.left, "b": p.right, "difference": p.difference}
               for p in getattr(found, part)] for part in ("phases", "kinds", "lines")}


def diagnose(request: Mapping[str, Any]) -> dict[str, Any]:
    """What an out-of-memory message means, for the run that is believed to have written it."""
    from peakmem.web.diagnosed import diagnosed

    only(request, *RUN, "message")
    return diagnosed(request, estimated)


def sweep(request: Mapping[str, Any]) -> dict[str, Any]:
    """The peak for every combination of some settings."""
    from peakmem.web.sweep import sweep as swept

    only(request, *RUN, "axes")
    return swept(model_of(request), settings_of(request), request.get("axes"), estimated)


def figure(name: str) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """A figure of the page: its answer does not depend on the reader."""
    def made(request: Mapping[str, Any]) -> dict[str, Any]:
        from peakmem.web import figures

        only(request, "ask")
        found: dict[str, Any] = getattr(figures, name)()
        return found

    return made


ASKS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "estimate": estimate, "chart": chart, "room": room, "beside": beside, "refused": refused, "fit": fit,
    "levers": levers, "compare": compare, "diagnose": diagnose, "sweep": sweep,
    "tables": figure("tables"),
    "three-layers": figure("three_layers"), "cells": figure("cells"), "growth": figure("growth"),
}
