"""SGD, RMSprop, Adagrad and others that look at one element at a time, and Lion.

Sources: torch 2.13, optim/sgd.py, rmsprop.py, adagrad.py, adadelta.py, adamax.py; names as there.
"""

from __future__ import annotations

from peakmem.estimate.optimizers.rule import Rule
from peakmem.estimate.optimizers.slots import Slot, TensorList, by_dtype, each


class SGD(Rule):
    """SGD without momentum: gradients are read, parameters written."""


class Momentum(Rule):
    """SGD(momentum=0.9). The first step makes the buffer while it updates: a clone of the gradient."""

    late = frozenset({"foreach"})

    def states(self, slot: Slot) -> None:
        slot.keep("momentum_buffer")

    def foreach(self) -> None:
        """_multi_tensor_sgd: the buffers of one group after those of another."""
        for group in by_dtype(self.slots):
            for slot in each(group):
                if not slot.states:
                    self.states(slot)


class Nesterov(Momentum):
    """SGD(nesterov=True): in the loop `grad = grad.add(buf)` is a new tensor, in the foreach form it is in place."""

    late = frozenset({"foreach", "loop"})

    def loop(self) -> None:
        """_single_tensor_sgd: the variable `grad` holds the sum until the next parameter's turn."""
        for slot in each(self.slots):
            grad = slot.grad
            if not slot.states:
                self.states(slot)
            grad = slot.make("gradient with momentum", dtype=slot.gradient_dtype)  # noqa: F841


class RMSprop(Rule):
    """RMSprop, neither centered nor with momentum."""

    def states(self, slot: Slot) -> None:
        slot.keep("square_avg")

    def foreach(self) -> None:
        """_multi_tensor_rmsprop: `avg = torch._foreach_sqrt(square_avgs)`."""
        for group in by_dtype(self.slots):
            avg = TensorList(slot.make("denominator", dtype=slot.state_dtype) for slot in each(group))
        del avg, group

    def loop(self) -> None:
        """_single_tensor_rmsprop: `avg = square_avg.sqrt()`, the last avg alive meanwhile."""
        for slot in each(self.slots):
            avg = slot.make("denominator", dtype=slot.state_dtype)  # noqa: F841


class Adagrad(Rule):
    """Adagrad: the constructor makes its states, so they exist before the first step."""

    at_construction = True
    step_on_device = True

    def states(self, slot: Slot) -> None:
        slot.keep("sum")

    def foreach(self) -> None:
        """_multi_tensor_adagrad: two lists, the roots and the scaled gradients."""
        for group in by_dtype(self.slots):
            std = TensorList(slot.make("denominator", dtype=slot.state_dtype) for slot in each(group))
            numerator = TensorList(slot.make("scaled gradient", dtype=slot.gradient_dtype) for slot in each(group))
        del std, numerator, group

    def loop(self) -> None:
        """_single_tensor_adagrad: `std = state_sum.sqrt().add_(eps)`, the last std alive meanwhile."""
        for slot in each(self.slots):
            std = slot.make("denominator", dtype=slot.state_dtype)  # noqa: F841


class Adadelta(Rule):
    """Adadelta: two temporaries of each parameter's size, which the loop's variables keep."""

    def states(self, slot: Slot) -> None:
        slot.keep("square_avg")
        slot.keep("acc_delta")

    def foreach(self) -> None:
        """_multi_tensor_adadelta: `std` and `deltas`, two lists."""
        for group in by_dtype(self.slots):
            std = TensorList(slot.make("denominator", dtype=slot.state_dtype) for slot in each(group))
            deltas = TensorList(slot.make("update", dtype=slot.state_dtype) for slot in each(group))
        del std, deltas, group

    def loop(self) -> None:
        """_single_tensor_adadelta: `std = square_avg.add(eps).sqrt_()`, then `delta` the same way."""
        for slot in each(self.slots):
            std = slot.make("denominator", dtype=slot.state_dtype)  # noqa: F841
            delta = slot.make("update", dtype=slot.state_dtype)  # noqa: F841


class Adamax(Rule):
    """Adamax: the gradient without its sign is the only temporary."""

    def states(self, slot: Slot) -> None:
        slot.keep("exp_avg")
        slot.keep("exp_inf")

    def foreach(self) -> None:
        """_multi_tensor_adamax: `grouped_grads = torch._foreach_abs(grouped_grads)`, until the next group."""
        for group in by_dtype(self.slots):
            grouped_grads = TensorList()
            grouped_grads = TensorList(slot.make("gradient without sign", dtype=slot.gradient_dtype)
                                       for slot in each(group))
        del grouped_grads, group

    def loop(self) -> None:
        """_single_tensor_adamax: `grad.abs()` is an argument of maximum, and gone when that returns."""
        for slot in each(self.slots):
            slot.make("gradient without sign", dtype=slot.gradient_dtype)


class Lion(Rule):
    """Lion as lion-pytorch writes it: a function called for each parameter, so nothing outlives its turn.

    `update = exp_avg.clone().mul_(beta1).add(grad, alpha=1 - beta1).sign_()`. The fused form has no temporary.
    """

    late = frozenset({"loop"})

    def states(self, slot: Slot) -> None:
        slot.keep("exp_avg")

    def loop(self) -> None:
        for slot in each(self.slots):
            if not slot.states:
                self.states(slot)
            clone = slot.make("scaled momentum", dtype=slot.state_dtype)
            update = slot.make("update", dtype=slot.state_dtype)
            del clone, update
