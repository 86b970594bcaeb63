"""Optimizers with states of 8 and 4 bits: codes, a scale for each block of codes, tables of what codes mean.

Sources: bitsandbytes 0.50.2, optim/optimizer.py (Optimizer2State.init_state); torchao 0.18, optim/adam.py
(_new_buffer) and optim/subclass_4bit.py. Which parameters are too small for codes depends on their number of
elements, so the sizes hold both cases.
"""

from __future__ import annotations

from peakmem.estimate.layout import BYTES, flat, size_key
from peakmem.estimate.optimizers.rule import Rule
from peakmem.estimate.optimizers.slots import SCALAR, Slot, named
from peakmem.estimate.tape import Key, Tensor, current
from peakmem.tables.optimizers import OPTIMIZERS

NOTHING: Key = (0, ())


class EightBit(Rule):
    """bitsandbytes AdamW8bit: one pass over codes, scales and gradients, no temporary."""

    row = OPTIMIZERS["adamw-8bit"]

    def __init__(self, slots: list[Slot], way: str, counts_on_device: bool = True) -> None:
        super().__init__(slots, way, counts_on_device)
        self.tables: list[Tensor] = []
        self.before: set[tuple[str, ...]] = set()

    def make_states(self, slots: list[Slot] | None = None) -> None:
        """Where layers are repeated the tables come first: each repetition has states, but no tables of its own."""
        if any(slot.parameter.fold for slot in self.slots):
            self.make_tables({letters_of(slot) for slot in self.slots})
        super().make_states(slots)

    def make_tables(self, sizes: set[tuple[str, ...]]) -> None:
        """The two tables belong to the optimizer and come with the first parameter that has codes."""
        table: Key = (self.row.tables, ())
        if self.before:
            table = ("from", self.row.least, 1, tuple(sorted(self.before)), NOTHING, table)
        if sizes <= self.before:
            return
        self.before |= sizes
        tape = current()
        outer, tape.kind = tape.kind, "optimizer_state"
        self.tables += [named(f"optimizer/{name}", SCALAR, "fp32",
                              ("from", self.row.least, 1, tuple(sorted(sizes)), table, NOTHING))
                        for name in ("code table, signed", "code table, unsigned")]
        tape.kind = outer

    def states(self, slot: Slot) -> None:
        letters = letters_of(slot)
        self.make_tables({letters})
        small: Key = (BYTES["fp32"], letters)
        for name in self.row.state_names:
            slot.keep(name, dtype="uint8", key=self.choice(letters, (1, letters), small))
        for name in self.row.state_names:
            scales: Key = ("blocks", BYTES["fp32"], self.row.block, letters)
            slot.keep(f"{name} scales", dtype="fp32", key=self.choice(letters, scales, NOTHING))

    def choice(self, letters: tuple[str, ...], large: Key, small: Key) -> Key:
        """One size from a number of elements on, another below it, and where blocks do not fit."""
        divisor = self.row.block if self.row.divisible else 1
        return ("from", self.row.least, divisor, (letters,), large, small)


class FourBit(EightBit):
    """torchao AdamW4bit: two codes in a byte; every state has its table; compiled, so no temporary."""

    row = OPTIMIZERS["adamw-4bit"]

    def make_states(self, slots: list[Slot] | None = None) -> None:
        Rule.make_states(self, slots)

    def states(self, slot: Slot) -> None:
        letters = letters_of(slot)
        for name in self.row.state_names:
            codes: Key = ("blocks", 1, 2, letters)
            scales: Key = ("blocks", BYTES["fp32"], self.row.block, letters)
            small: Key = (BYTES[slot.dtype], letters)
            slot.keep(name, dtype="uint8", key=self.choice(letters, codes, small))
            slot.keep(f"{name} scales", dtype="fp32", key=self.choice(letters, scales, NOTHING))
            table: Key = (self.row.tables, ())
            slot.keep(f"{name} code table", dtype="fp32", key=self.choice(letters, table, NOTHING))


def letters_of(slot: Slot) -> tuple[str, ...]:
    """The letters whose product is the number of elements."""
    return size_key("uint8", flat(slot.dims))[1]
