"""Why a tensor is alive: the sentence of each line, made from what consumes it."""

from __future__ import annotations

from peakmem.estimate.tape import Tape
from peakmem.immutable import replace
from peakmem.ledger import Line


def why_of(tape: Tape, members: list[int], kind: str, name: str, born: str, freed: str) -> str:
    """Who needs a tensor, from what saved it; else what it is on the way to."""
    reasons = list(dict.fromkeys(reason for i in members for reason in tape.records[i].why))
    purpose = tape.records[members[0]].purpose
    if kind == "weights":
        use = f"; kept for backward: {'; '.join(reasons)}" if reasons else ""
        read = "forward" if tape.parts.m.run == "inference" else "forward and backward"
        return f"{name}{f': {purpose}' if purpose else f' is read in every {read}'}{use}"
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
    """Lines whose sentences differ: where several tensors serve one purpose, each says which it is, as shortly as
    tells them apart."""
    alike: dict[str, list[Line]] = {}
    for line in lines:
        alike.setdefault(line.why, []).append(line)
    return tuple(line if len(alike[line.why]) == 1 else replace(line, why=f"{line.why} ({mark(line, alike[line.why])})")
                 for line in lines)


def mark(line: Line, others: list[Line]) -> str:
    """What none of the others has: the end of its name, its name, its size, its birth, or the last three."""
    whole = lambda line: f"{line.kind}, {line.name}, {line.formula}, {line.born}"  # noqa: E731
    for what in (lambda line: line.name.rsplit("/", 1)[-1], lambda line: line.name, lambda line: line.formula,
                 lambda line: line.born, lambda line: f"{line.name.rsplit('/', 1)[-1]}, {line.born}", whole):
        if len({what(other) for other in others}) == len(others):
            break
    return str(what(line))
