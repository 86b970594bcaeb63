"""Adam and its relatives. Sources: torch 2.13, optim/adam.py and optim/nadam.py; names as there."""

from __future__ import annotations

from peakmem.estimate.optimizers.rule import Rule
from peakmem.estimate.optimizers.slots import Slot, TensorList, by_dtype, each


class Adam(Rule):
    """Adam and AdamW with default arguments: decoupled weight decay works in place, Adam's is zero."""

    step_on_device = True

    def states(self, slot: Slot) -> None:
        slot.keep("exp_avg")
        slot.keep("exp_avg_sq")

    def foreach(self) -> None:
        """_multi_tensor_adam: the square roots of all second moments of a group live together."""
        for group in by_dtype(self.slots):
            exp_avg_sq_sqrt = TensorList(slot.make("denominator", dtype=slot.state_dtype) for slot in each(group))
        del exp_avg_sq_sqrt, group

    def loop(self) -> None:
        """_single_tensor_adam: `denom = (exp_avg_sq.sqrt() / c).add_(eps)`; the last denom lives meanwhile."""
        for slot in each(self.slots):
            sqrt = slot.make("square root", dtype=slot.state_dtype)
            divided = slot.make("denominator", dtype=slot.state_dtype)
            del sqrt
            denom = divided  # noqa: F841
            del divided


class AMSGrad(Adam):
    """AdamW(amsgrad=True): the root is that of the third state."""

    def states(self, slot: Slot) -> None:
        super().states(slot)
        slot.keep("max_exp_avg_sq")


class NAdam(Adam):
    """NAdam: `denom = exp_avg_sq.div(c).sqrt()` in the loop, one list of roots in the foreach form."""

    step_on_device = False
