"""Everything from the gradients to the end of the step: states, master weights, clipping, the update, clearing.

Each optimizer is code over tensors without numbers, written like the optimizer it mirrors, so Python's
variables and lists give its temporaries their lifetimes.
"""

from __future__ import annotations

from collections.abc import Mapping

from peakmem.estimate.layout import flat, size_key
from peakmem.estimate.optimizers.adam import Adam, AMSGrad, NAdam
from peakmem.estimate.optimizers.blocks import EightBit, FourBit
from peakmem.estimate.optimizers.clipping import clip_grad_norm
from peakmem.estimate.optimizers.matrices import Adafactor, Muon
from peakmem.estimate.optimizers.plain import SGD, Adadelta, Adagrad, Adamax, Lion, Momentum, Nesterov, RMSprop
from peakmem.estimate.optimizers.rule import Rule
from peakmem.estimate.optimizers.slots import SCALAR, Slot, each, free_folded, named
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Key, Storage, Tape, Tensor
from peakmem.immutable import replace

__all__ = ["RULES", "Training", "free_folded"]

RULES: Mapping[str, type[Rule]] = {
    "none": Rule, "sgd": SGD, "momentum": Momentum, "nesterov": Nesterov,
    "adam": Adam, "adamw": Adam, "amsgrad": AMSGrad, "nadam": NAdam,
    "rmsprop": RMSprop, "adagrad": Adagrad, "adadelta": Adadelta, "adamax": Adamax, "lion": Lion,
    "adafactor": Adafactor, "muon": Muon, "adamw-8bit": EightBit, "adamw-4bit": FourBit,
}


class Training:
    """The trained parameters of a run, and what is done to them. Lives as long as the run."""

    def __init__(self, tape: Tape, m: Structure) -> None:
        self.tape, self.m = tape, m
        owned = {id(p.owned): p.owned for p in tape.parameters.values() if p.trained}
        self.all_slots = [Slot(p, m) for p in owned.values()]
        self.slots = [slot for slot in self.all_slots if slot.parameter.reached]
        # Apex's and DeepSpeed's fused Adam, which bring master weights, count steps on the host.
        self.rule = RULES[m.optimizer](self.slots, m.optimizer_implementation, not m.master)

    def begin(self) -> None:
        """What exists before the step: master weights, buffers, and what earlier steps left."""
        self.make_masters()
        self.make_gradient_buffer()
        if self.m.step == "steady":
            self.make_gradients()
        if self.rule.at_construction:  # nobody knows yet which parameters get a gradient
            self.rule.make_states(self.all_slots)
        elif self.m.step == "steady":
            self.rule.make_states()

    def make_masters(self) -> None:
        """fp32 copies of parameters that have fewer bits: the optimizer updates these; it makes them of all that it is
        given, before it knows which get a gradient."""
        if not self.m.master:
            return
        outer, self.tape.kind = self.tape.kind, "optimizer_state"
        for slot in each(self.all_slots):
            if slot.parameter.owned.dtype != self.m.master:
                slot.master = slot.make("master", dtype=self.m.master)
        self.tape.kind = outer

    def make_gradient_buffer(self) -> None:
        """One flat buffer for all gradients. Source: Megatron-LM, core/distributed/param_and_grad_buffer.py."""
        dtype = self.m.gradient_buffer
        self.tape.drops_gradients = bool(dtype)
        if not dtype or not self.slots:
            return
        parts: list[Key] = []
        for p in self.tape.parameters.values():
            if not p.trained:
                continue
            width, letters = size_key(dtype, flat(p.dims))
            fold = p.fold
            parts.append((width, (fold, *letters) if fold else letters))
        outer, self.tape.kind = self.tape.kind, "gradients"
        self.buffer = named("gradient buffer", SCALAR, dtype, collected(parts))
        self.tape.kind = outer

    def make_gradients(self) -> None:
        """Gradients that the last step zeroed and did not drop."""
        if self.m.set_to_none or self.m.gradient_buffer:
            return
        outer, self.tape.kind = self.tape.kind, "gradients"
        if not self.tape.parts.make_gradients():
            lies_in = self.storages_of_first_gradients()
            made: dict[int, Tensor] = {}
            for slot in each(self.slots):
                owned, whole = slot.parameter.owned, lies_in.get(id(slot.parameter))
                if whole and id(whole) in made:
                    owned.grad = made[id(whole)].seen_as(owned.dims, flat(owned.dims))
                    continue
                key = whole.record.key if whole else None
                owned.grad = self.tape.new(owned.dims, owned.dtype, None, f"{slot.name} gradient", key)
                if whole:
                    made[id(whole)] = owned.grad
        self.tape.kind = outer

    def storages_of_first_gradients(self) -> dict[int, Storage]:
        """The storages in which the first step's gradients lie, by parameter: a view keeps the whole one, and two views
        of one share it."""
        from peakmem.estimate.interpret import interpret

        first = interpret(replace(self.m, step="first")).parameters
        return {id(p): grad.storage for name, p in self.tape.parameters.items()
                if (grad := first[name].grad) is not None and grad.storage}

    def clip(self) -> None:
        """Clip the gradients; nobody keeps their norm."""
        self.tape.at("/clip_grad_norm_")
        clip_grad_norm(self.slots)

    def step(self) -> None:
        """One optimizer step over the gradients that exist."""
        self.tape.at(f"/{self.m.optimizer} step")
        if self.slots:
            self.rule.step()

    def clear(self) -> None:
        """zero_grad: the gradients go, or are zeroed and stay."""
        self.tape.at("/zero_grad")
        if not self.m.set_to_none:
            return
        for slot in each(self.slots):
            slot.parameter.owned.grad = None


def collected(parts: list[Key]) -> Key:
    """A sum with equal products put together."""
    counts: dict[Key, int] = {}
    for width, letters in parts:
        counts[letters] = counts.get(letters, 0) + width
    return ("+", *((width, letters) for letters, width in counts.items()))
