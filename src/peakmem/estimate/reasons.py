"""Why a tensor is alive: the sentence of each line, made from what consumes it."""

from __future__ import annotations

from collections import Counter

from peakmem.estimate.tape import Tape
from peakmem.immutable import replace
from peakmem.ledger import Line


def why_of(tape: Tape, members: list[int], kind: str, name: str, born: str, freed: str) -> str:
    """Who needs a tensor, from what saved it; else what it is on the way to."""
    reasons = list(dict.fromkeys(reason for i in members for reason in tape.records[i].why))
    purpose = tape.records[members[0]].purpose
    if kind == "weights":
        use = f"; kept for backward: {'; '.join(reasons)}" if reasons else ""
        return f"{name}{f': {purpose}' if purpose else ' is read in every forward and backward'}{use}"
    if purpose:
        return f"{name}: {purpose}"
    if kind == "gradients":
        return f"{name}: what backward found, read by the optimizer, dropped by zero_grad"
    if kind == "optimizer_state":
        return f"{name}: what the optimizer remembers from step to step"
    if name.startswith("input/"):
        return f"{name}: the batch, on the device all the time"
    if tape.records[members[0]].scratch:
        return f"{name}: inside the kernel, until it returns; no tensor owns it"
    if reasons:
        shared = f": one tensor, {len(reasons)} uses" if len(reasons) > 1 else ""
        return "; ".join(reasons) + shared
    return f"{name} lives from {born or 'the start'} to {freed or 'the end'}: nothing keeps it longer"


def told_apart(lines: tuple[Line, ...]) -> tuple[Line, ...]:
    """Lines whose sentences differ: where several tensors serve one purpose, each says which it is."""
    for what in (lambda line: line.name.rsplit("/", 1)[-1], lambda line: line.name, lambda line: line.formula,
                 lambda line: f"{line.kind}, {line.born}"):
        seen = Counter(line.why for line in lines)
        if len(seen) == len(lines):
            break
        lines = tuple(replace(line, why=f"{line.why} ({what(line)})") if seen[line.why] > 1 else line for line in lines)
    return lines
