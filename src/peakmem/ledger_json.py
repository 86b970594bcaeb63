"""Ledgers as JSON, both ways. The format has a version from its first day."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from peakmem.errors import Unreadable, printable
from peakmem.files import Twice, once, read as read_bytes
from peakmem.ledger import FORMAT, KINDS, ChartRow, Detail, KindPeak, Ledger, Line, Parameters, Peak, Totals

if TYPE_CHECKING:
    from pathlib import Path


LARGEST_FILE = 32 * 2**20
"""Real ones with every event are below 10 MiB; what is parsed takes five times its file."""


def as_json(ledger: Ledger, timeline: bool = False) -> dict[str, Any]:
    """Plain containers, in the order of the format. `timeline`: with the live bytes after every event."""
    totals, peak = ledger.totals, ledger.peak
    result: dict[str, Any] = {
        "format": FORMAT,
        "origin": ledger.origin,
        "run": dict(ledger.run),
        "notes": list(ledger.notes),
        "totals": {"tensors": totals.tensors, "allocated": totals.allocated, "reserved": totals.reserved,
                   "device": list(totals.device) if totals.device else None,
                   "host": totals.host, "disk": totals.disk},
        "peak": {"bytes": peak.bytes, "moment": peak.moment, "by_kind": dict(peak.by_kind),
                 "formula": peak.formula, "substituted": peak.substituted},
        "kinds": {kind: vars(value).copy() for kind, value in ledger.kinds.items()},
        "chart": [row_as_json(row) for row in ledger.chart],
        "phases": dict(ledger.phases),
        "parameters": vars(ledger.parameters).copy(),
        "flops": dict(ledger.detail.flops),
        "lines": [vars(line).copy() for line in ledger.lines],
    }
    if timeline:
        result["timeline"] = [[moment, dict(by_kind)] for moment, by_kind in ledger.timeline]
    return result


def row_as_json(row: ChartRow) -> dict[str, Any]:
    return {"moment": row.moment, "end": row.end, "peak": row.peak, "by_kind": dict(row.by_kind),
            "peak_by_kind": dict(row.peak_by_kind)}


def read(path: str | Path) -> Ledger:
    """A ledger that was written before. Errors: Unreadable: not a ledger, another version, a missing part."""
    if str(path) == "-":
        name, text = "standard input", sys.stdin.read(LARGEST_FILE + 1)
        too_long = len(text) > LARGEST_FILE
    else:
        name = printable(str(path))
        try:
            raw = read_bytes(path, LARGEST_FILE, streams=True)
            text = "" if len(raw) > LARGEST_FILE else raw.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise Unreadable(f"{name}: not UTF-8 text") from None
        too_long = len(raw) > LARGEST_FILE
    if too_long:
        raise Unreadable(f"{name}: larger than {LARGEST_FILE >> 20} MiB, the limit for a ledger")
    try:
        data = json.loads(text, object_pairs_hook=once)
    except Twice as error:
        raise Unreadable(f"{name} has {error}") from None
    except (ValueError, RecursionError):
        raise Unreadable(f"{name}: not JSON; write one with: peakmem estimate MODEL --json") from None
    return from_json(data, name)


def from_json(data: Any, name: str = "ledger") -> Ledger:
    """The ledger that `as_json` made these containers from."""
    found = data.get("format") if isinstance(data, dict) else None
    if found != FORMAT:
        raise Unreadable(f"{name}: format is {printable(found)}, this version reads {FORMAT!r}")
    try:
        totals = Totals(**data["totals"] | {"device": tuple(data["totals"]["device"] or ()) or None})
        detail = Detail(
            peak=Peak(**data["peak"]),
            kinds={kind: KindPeak(**data["kinds"][kind]) for kind in KINDS if kind in data["kinds"]},
            chart=tuple(ChartRow(**row) for row in data["chart"]),
            lines=tuple(Line(**line) for line in data["lines"]),
            flops=dict(data.get("flops", {})),
        )
        timeline = tuple((moment, by_kind) for moment, by_kind in data.get("timeline", ()))
        return Ledger(data["origin"], data["run"], tuple(data["notes"]), totals, data["phases"],
                      Parameters(**data["parameters"]), lambda: detail, lambda: timeline)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Unreadable(f"{name}: part of a ledger is missing or odd: {printable(str(error))}") from None
