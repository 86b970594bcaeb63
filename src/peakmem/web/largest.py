"""What holds most, and why it is alive."""

from __future__ import annotations

from typing import Any

from peakmem.ledger import Ledger, Line
from peakmem.reasons import sentence


def largest(ledger: Ledger, most: int = 8) -> dict[str, Any]:
    """What holds most at the peak; lines of one kind, size and number stand together."""
    groups: dict[tuple[str, str, int, int], list[Line]] = {}
    for line in ledger.lines:
        if line.at_peak and not line.scratch:
            groups.setdefault((line.kind, line.substituted, line.bytes, line.at_peak), []).append(line)
    ranked = sorted(((sum(line.bytes_at_peak for line in group), group) for group in groups.values()),
                    key=lambda pair: (-pair[0], pair[1][0].name))
    shown = [{"names": [line.name for line in group], "kind": group[0].kind, "bytes": total,
              "each": group[0].bytes, "at_peak": group[0].at_peak, "formula": group[0].formula,
              "substituted": group[0].substituted, "born": group[0].born, "freed": group[0].freed,
              "why": sentence(group[0])} for total, group in ranked[:most]]
    rest = ranked[most:]
    return {"largest": shown, "more": {"lines": sum(len(group) for _, group in rest),
                                       "bytes": sum(total for total, _ in rest)}}


def reasons(ledger: Ledger) -> dict[str, str]:
    """By kind: the line that is largest where the kind is, and its reason in sentences."""
    found = {}
    for kind, one in ledger.kinds.items():
        told = [line for line in ledger.lines if line.kind == kind and one.why.startswith(f"largest: {line.name}: ")]
        found[kind] = f"Largest: {told[0].name}. {sentence(told[0])}" if told else one.why
    return found
