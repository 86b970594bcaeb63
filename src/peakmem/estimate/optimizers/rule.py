"""What every optimizer here is: states of one parameter, and a step over all of them."""

from __future__ import annotations

from peakmem.estimate.optimizers.slots import Slot, each


class Rule:
    """An optimizer over its parameters. `way`: foreach, loop or fused, as torch.optim calls them."""

    step_on_device = False  # the fused form counts steps in a device tensor for each parameter
    at_construction = False  # states are made before the first step
    late: frozenset[str] = frozenset()  # the ways that make the states of a parameter when its turn comes

    def __init__(self, slots: list[Slot], way: str, counts_on_device: bool = True) -> None:
        self.slots, self.way = slots, way
        self.counts = self.step_on_device and way == "fused" and counts_on_device

    def states(self, slot: Slot) -> None:
        """Make the states of one parameter, in the order in which the optimizer makes them."""

    def make_states(self, slots: list[Slot] | None = None) -> None:
        """_init_group: states of the parameters that have none yet; of those that have a gradient, or of these."""
        for slot in each(self.slots if slots is None else slots):
            if not slot.states:
                if self.counts:
                    slot.keep("step", (), "fp32")
                self.states(slot)

    def step(self) -> None:
        """One optimizer step."""
        if self.way not in self.late:
            self.make_states()
        {"foreach": self.foreach, "loop": self.loop, "fused": self.fused}[self.way]()

    def foreach(self) -> None:
        """All tensors of a group at once: temporaries are lists."""

    def loop(self) -> None:
        """One parameter after another: temporaries are Python variables, which keep their last value."""

    def fused(self) -> None:
        """One kernel that reads and writes everything in place."""
