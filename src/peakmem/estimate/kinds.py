"""What each storage of a tape is for. One storage has one kind for its whole life."""

from __future__ import annotations

from functools import lru_cache

from peakmem.estimate.tape import Phase, Tape


@lru_cache(maxsize=256)
def kinds_of(tape: Tape) -> tuple[str, ...]:
    """The kind of every storage: what it was made as, unless it is there for the backward."""
    kept = alive_after_forward(tape)
    return tuple("activations" if record.kind == "temporary" and not record.name.startswith("input/")
            and (record.saved or i in kept and not record.loss) else record.kind
            for i, record in enumerate(tape.records))


def alive_after_forward(tape: Tape) -> set[int]:
    """What a forward makes and leaves: saved by a node, or held by a layer that will run again."""
    found: set[int] = set()
    alive: set[int] = set()
    inside = False
    for event in tape.events:
        if type(event) is Phase:
            found |= alive
            alive.clear()
            inside = event.name.startswith("forward")
        elif inside and type(event) is int:
            alive.add(event) if event >= 0 else alive.discard(~event)
    return found
