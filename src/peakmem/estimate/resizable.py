"""Memory that comes and goes while the tensors in it stay."""

from __future__ import annotations

from peakmem.estimate.tape import Record, Storage, Tape


class Resizable(Storage):
    """Memory that comes and goes while its tensors stay, as untyped_storage().resize_() does it; empty at first."""

    __slots__ = ("tape",)

    def __init__(self, tape: Tape, record: Record) -> None:
        self.tape, self.events, self.index, self.record = tape, tape.events, -1, record

    def fill(self) -> None:
        """Allocate. Each time is a birth of its own, with the same reasons."""
        if self.index < 0:
            old, self.index = self.record, len(self.tape.records)
            self.record = Record(old.key, old.name, old.kind, self.tape.times, False, self.tape.scope)
            self.record.why, self.record.purpose, self.record.source = old.why, old.purpose, old.source
            self.tape.records.append(self.record)
            self.events.append(self.index)

    def empty(self) -> None:
        """Free, whoever still refers to it."""
        if self.index >= 0:
            self.events.append(~self.index)
            self.index = -1

    def __del__(self) -> None:
        self.empty()
