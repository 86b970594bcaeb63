"""What the model returned in the step before, and its caller still holds: logits, keys and values, and their graph.

A loop that says `outputs = model(**inputs)` lets go of the old outputs when the new ones are there: they are alive
during the whole forward, and the new ones until the end of the step and beyond. Backward empties what the graph has
saved, not what an autograd.Function keeps as an attribute of its own (`ctx.tensors = …`): that lives as long as
anything of the graph does, the outputs or the loss.
"""

from __future__ import annotations

from peakmem.errors import Impossible
from peakmem.estimate.optimizers.slots import free_folded
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Begin, End, Phase, Record, Tape, Tensor, current

WHY = "the caller holds it until the next step has returned its own"


def hand_out(x: Tensor) -> None:
    """Note that the model returns this."""
    tape = current()
    if tape.outputs is not None:
        tape.outputs.append(x.detached())


def hand_out_cache(m: Structure, *kept: Tensor) -> None:
    """The same for keys and values, which a model with use_cache returns also in training, but not checkpointed."""
    if m.outputs == "logits+cache" and m.checkpoint == "none" and current().outputs is not None:
        for x in kept:
            if x.storage:
                x.storage.record.why.append(WHY)
            hand_out(x)


def keep_in_graph(x: Tensor, why: str) -> None:
    """What an autograd.Function keeps as an attribute: alive until the graph goes."""
    if x.storage:
        x.storage.record.why.append(why)
        x.storage.record.saved = True
    current().in_graph.append(x.detached())


def returned() -> None:
    """The model has returned, and its caller will compute the loss."""
    tape = current()
    if tape.returned is not None:
        tape.returned()


class Held:
    """The outputs that are alive between one forward and the next."""

    def __init__(self, tape: Tape, m: Structure) -> None:
        self.tape, self.on = tape, m.outputs != "dropped" and m.run == "training"
        self.steady, self.model = m.step == "steady", m.architecture
        self.outputs: list[Tensor] = []
        self.graph: list[Tensor] = []

    def before(self) -> None:
        """A forward begins."""
        if self.on:
            self.tape.outputs, self.tape.returned = [], self.after

    def after(self) -> None:
        """A forward has returned: what was held goes."""
        new, self.tape.outputs = self.tape.outputs, None
        if new is None:
            return
        unique = list({id(x.storage): x for x in new if x.storage}.values())
        if all(x.storage and WHY in x.storage.record.why for x in unique):  # keys and values alone
            raise Impossible(f"--outputs: what {self.model} returns beside its loss is not known; leave it out")
        for x in unique:
            if x.storage and WHY not in x.storage.record.why:
                x.storage.record.why.append(WHY)
        del x
        if self.outputs:
            free_folded(self.tape, self.outputs)
        elif self.steady:
            stand_ins(self.tape, [x.storage.record for x in unique if x.storage])
        self.outputs = unique


    def loss_there(self) -> None:
        """The new loss is there: what the last graph kept goes, if its outputs or its loss were held so far."""
        if not self.on:
            return
        new, self.tape.in_graph = self.tape.in_graph, []
        unique = list({id(x.storage): x for x in new if x.storage}.values())
        del new
        if self.graph:
            free_folded(self.tape, self.graph)
        elif self.steady and unique:
            stand_ins(self.tape, [x.storage.record for x in unique if x.storage])
        self.graph = unique

    def backward_done(self) -> None:
        """Nobody holds the loss: its graph goes."""
        if not self.on:
            kept = list({id(x.storage): x for x in self.tape.in_graph if x.storage}.values())
            self.tape.in_graph = []
            free_folded(self.tape, kept)


def stand_ins(tape: Tape, records: list[Record]) -> None:
    """What the step before has left: as large as what this one made, born at the start, gone now."""
    start = next(i for i, event in enumerate(tape.events) if type(event) is Phase and event.name.startswith("forward"))
    born: list[object] = []
    gone: list[object] = []
    for record in records:
        old = Record(record.key, f"{record.name} of the step before", "activations", record.fold, False, record.scope)
        old.why.append(WHY)
        number = len(tape.records)
        tape.records.append(old)
        for events, event in ((born, number), (gone, ~number)):
            if record.fold and len(events) >= 2 and type(events[-1]) is End and begin_of(events) == record.fold:
                events.insert(-1, event)
            elif record.fold:
                events += [Begin(record.fold), event, End()]
            else:
                events.append(event)
    tape.events[start:start] = born
    tape.events += gone


def begin_of(events: list[object]) -> str:
    """How often the last stretch is repeated."""
    return next(event.times for event in reversed(events) if isinstance(event, Begin))
