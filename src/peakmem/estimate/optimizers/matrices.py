"""Optimizers that look at a matrix as one: Adafactor and Muon.

Sources: torch 2.13, optim/_adafactor.py and optim/_muon.py, line by line; names as there.
"""

from __future__ import annotations

from peakmem.estimate.layout import Dims, size_key
from peakmem.estimate.optimizers.adam import Adam
from peakmem.estimate.optimizers.rule import Rule
from peakmem.estimate.optimizers.slots import Slot, TensorList, by_dtype, each
from peakmem.estimate.tape import Tensor


class Adafactor(Rule):
    """One row and one column of second moments for a matrix (or a stack of them); vectors keep all of theirs."""

    def states(self, slot: Slot) -> None:
        if is_matrix(slot):
            slot.keep("row_var", rows(slot.dims))
            slot.keep("col_var", columns(slot.dims))
        else:
            slot.keep("variance")

    def loop(self) -> None:
        """_single_tensor_adafactor: variables keep their tensors until the next parameter of the same kind."""
        for slot in each(self.slots):
            norm_to_host(slot)
            if is_matrix(slot):
                row_mean = slot.make("row mean", rows(slot.dims), slot.gradient_dtype)  # noqa: F841
                col_mean = slot.make("column mean", columns(slot.dims), slot.gradient_dtype)  # noqa: F841
                var_estimate = slot.make("variance estimate", dtype=slot.state_dtype)
                mean_of_rows(slot)
            else:
                grad_squared = slot.make("squared gradient", dtype=slot.gradient_dtype)  # noqa: F841
                var_estimate = slot.make("variance estimate", dtype=slot.state_dtype)
            update = var_estimate
            norm_to_host(slot, update.dtype)

    def foreach(self) -> None:
        """_multi_tensor_adafactor: matrices and vectors are groups of their own, in order of appearance."""
        for group in by_dtype(self.slots):
            kinds: dict[bool, list[Slot]] = {}
            for slot in group:
                kinds.setdefault(is_matrix(slot), []).append(slot)
            for matrices, some in kinds.items():
                for slot in each(some):
                    norm_to_host(slot)
                if matrices:
                    row_means = TensorList(slot.make("row mean", rows(slot.dims), slot.gradient_dtype)
                                           for slot in each(some))
                    del row_means
                    col_means = TensorList(slot.make("column mean", columns(slot.dims), slot.gradient_dtype)
                                           for slot in each(some))
                    del col_means
                    var_estimates = TensorList(slot.make("variance estimate", dtype=slot.state_dtype)
                                               for slot in each(some))
                    row_var_means = TensorList(slot.make("mean of rows", leading(slot.dims), slot.state_dtype)
                                               for slot in each(some))
                    del row_var_means
                else:
                    grads_squared = TensorList(slot.make("squared gradient", dtype=slot.gradient_dtype)
                                               for slot in each(some))
                    del grads_squared
                    var_estimates = TensorList(slot.make("variance estimate", dtype=slot.state_dtype)
                                               for slot in each(some))
                updates = var_estimates
                for slot in each(some):
                    norm_to_host(slot, slot.state_dtype)
        del var_estimates, updates


def is_matrix(slot: Slot) -> bool:
    return len(slot.dims) > 1


def rows(shape: Dims) -> Dims:
    """`shape[-1] = 1`."""
    return (*shape[:-1], ())


def columns(shape: Dims) -> Dims:
    """`shape[-2] = 1`."""
    return (*shape[:-2], (), shape[-1])


def leading(shape: Dims) -> Dims:
    """`row_var.mean(dim=-2, keepdim=True)`."""
    return (*shape[:-2], (), ())


def norm_to_host(slot: Slot, dtype: str = "") -> None:
    """`x.norm(2).item()`: one number, gone as soon as the host has read it."""
    slot.scalar("norm", dtype)


def mean_of_rows(slot: Slot) -> None:
    """`row_var.mean(dim=-2, keepdim=True).clamp_(min=eps1)`, divided by in place."""
    slot.make("mean of rows", leading(slot.dims), slot.state_dtype)


class Muon(Rule):
    """Muon for hidden matrices, then AdamW for everything else: embeddings, the head, vectors, stacked experts.

    The words foreach, loop and fused say how AdamW runs; Muon itself is a loop.
    """

    def __init__(self, slots: list[Slot], way: str, counts_on_device: bool = True) -> None:
        hidden = [slot for slot in slots if is_hidden(slot)]
        super().__init__(hidden, way)
        self.rest = Adam([slot for slot in slots if not is_hidden(slot)], way, counts_on_device)

    def states(self, slot: Slot) -> None:
        slot.keep("momentum_buffer")

    def make_states(self, slots: list[Slot] | None = None) -> None:
        """Both optimizers': where a step makes them, AdamW's come after Muon's update."""
        super().make_states(slots)
        self.rest.make_states()

    def step(self) -> None:
        super().make_states()
        self.loop()
        if self.rest.slots:
            self.rest.step()

    def loop(self) -> None:
        """_single_tensor_muon: the last update lives until the next one has been made orthogonal."""
        for slot in each(self.slots):
            update = slot.make("update", dtype=slot.gradient_dtype)
            update = orthogonal(slot, update)
        update = None  # type: ignore[assignment]


def is_hidden(slot: Slot) -> bool:
    """A matrix between embedding and head."""
    return len(slot.dims) == 2 and slot.parameter.module not in ("embedding", "head")


def orthogonal(slot: Slot, grad: Tensor) -> Tensor:
    """_zeropower_via_newtonschulz: five steps in bf16 on the matrix and the square of its smaller side."""
    ortho_grad = grad if grad.dtype == "bf16" else slot.make("update in bf16", dtype="bf16")
    norm = slot.scalar("norm", "bf16")
    clamped = slot.scalar("norm, clamped", "bf16")
    del norm, clamped
    for _ in range(5):
        gram_matrix = square(slot, "gram matrix")  # noqa: F841
        gram_update = square(slot, "gram update")  # noqa: F841
        ortho_grad = slot.make("orthogonal update", dtype="bf16")
    return ortho_grad


def square(slot: Slot, name: str) -> Tensor:
    """A matrix with the smaller side of the parameter on both sides; which one it is, numbers say."""
    left, right = (size_key("bf16", group)[1] for group in slot.dims)
    return slot.make(name, slot.dims, "bf16", key=("smaller side squared", 2, left, right))
