"""ZeRO stages 1 and 2, as DeepSpeed 0.19 runs them: every weight whole, the optimizer's part of it on each GPU.

Source: deepspeed 0.19.8, runtime/zero/stage_1_and_2.py; Rajbhandari et al. 2020, https://arxiv.org/abs/1910.02054.

- Trained weights are one flat tensor, padded to a multiple of 2·GPUs elements. The optimizer updates one flat
  partition of it in the master dtype, always a copy, and keeps its states there.
- `setup_buckets`: a reduce bucket, made at the first gradient. Stage 2 moves every gradient into it on arrival and
  what this GPU owns on into a partition; stage 1 does so after the last micro-batch, gradients stay whole till then.
- The last reduction flattens what is in the bucket (`allreduce_bucket`): a copy, where there are other GPUs.
- `step`: each gradient in fp64 for its norm (`get_norm_dtype`), one after another; then the partition is flattened
  and cast to the master's dtype; that goes after the update.

Compared with runs of DeepSpeed itself on the CPU, event by event. Not in the tape, because they hang on which sizes
meet: copies of a bucket that is full before the end, and that the buffer of the partition holds a parameter whole
that only begins or ends in it. The partition is counted from the first gradient on: DeepSpeed makes it when the
first bucket with an owned gradient is full, soonest on the GPU whose parameters come first in backward.
"""

from __future__ import annotations

from peakmem.estimate.layout import BYTES, Dims, flat, size_key
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Key, Parameter, Storage, Tape, Tensor
from peakmem.estimate.whole import Whole, buffer

PARTITION: Dims = (("trained/w^2",),)


class Flat(Whole):
    """What stages 1 and 2 share. Alone: Megatron-LM's distributed optimizer, whose gradients stay in one buffer."""

    source = "Megatron-LM core/optimizer/distrib_optimizer.py"

    def __init__(self, tape: Tape, m: Structure) -> None:
        super().__init__(tape, m)
        self.weights: Storage | None = None
        self.owned: Parameter | None = None
        self.alone = "w" in tape.ones
        self.last = False

    def parameter(self, shape: Dims, dtype: str, name: str, trained: bool, fold: str) -> Parameter:
        """A view of the flat weights, if it is trained."""
        if not trained:
            return super().parameter(shape, dtype, name, trained, fold)
        if self.owned is None:
            self.make_flat(dtype)
        p = Parameter(shape, dtype, self.weights, name, True, fold)
        p.shard = self.owned
        return p

    def make_flat(self, dtype: str) -> None:
        """flatten_dense_tensors_aligned, and single_partition_of_fp32_groups."""
        key = size_key(dtype, (*flat(PARTITION), "w"))
        self.weights = buffer(self.tape, key, dtype, "flat weights", "every trained weight is a view of it",
                              "weights").storage
        own = self.m.master or dtype
        self.owned = Parameter(PARTITION, own, None, "partition", True, "")
        with self.optimizer_place():
            self.owned.storage = buffer(self.tape, size_key(own, flat(PARTITION)), own, "partition/master",
                                        f"this GPU's part of the weights in {own}: what the optimizer updates",
                                        "optimizer_state").storage

    def begin(self, micro_batch: int) -> None:
        """The last micro-batch is DeepSpeed's gradient accumulation boundary."""
        self.last = micro_batch == self.m.micro_batches - 1


class Buckets(Flat):
    """The reduce bucket, and the partition of gradients."""

    source = "deepspeed 0.19.8 runtime/zero/stage_1_and_2.py"

    def __init__(self, tape: Tape, m: Structure) -> None:
        super().__init__(tape, m)
        tape.arrived = self.arrived
        self.bucket: Tensor | None = None
        self.partition: Tensor | None = None
        self.later: Tensor | None = None  # a further micro-batch's partition, before it is added to the first
        self.dtype = ""

    def arrived(self, p: Parameter) -> None:
        """The hook after AccumulateGrad."""
        if self.bucket is None:
            self.dtype = p.dtype
            self.bucket = buffer(self.tape, (BYTES[p.dtype], ("bucket",)), p.dtype, "reduce bucket",
                                 "gradients on their way to all GPUs: DeepSpeed's reduce_bucket_size elements, "
                                 "whatever the model's size")

    def make_partition(self) -> Tensor | None:
        return buffer(self.tape, size_key(self.dtype, flat(PARTITION)), self.dtype, "partition/gradient",
                      "this GPU's part of the reduced gradients", "gradients")

    def flush(self) -> None:
        """The last reduction: the bucket's contents, flattened."""
        if not self.alone:
            key: Key = ("smaller", (BYTES[self.dtype], ("bucket",)), (BYTES[self.dtype], ("trained",)))
            buffer(self.tape, key, self.dtype, "reduce bucket, flattened", "what the last all-reduce adds up")

    def norm(self) -> None:
        """Norms are taken in fp64: the largest gradient's copy, as far as it lies in the partition."""
        buffer(self.tape, ("smaller", (8, ("largest",)), (8, flat(PARTITION))), "fp64", "partition/gradient in fp64",
               "one gradient after another, for its norm", "temporary")

    def before_step(self) -> None:
        """step(): the partition flattened, then in the master's dtype."""
        if self.owned is None or self.partition is None:
            return
        self.norm()
        grad = buffer(self.tape, size_key(self.dtype, flat(PARTITION)), self.dtype, "partition/gradient, flattened",
                      "the partition's gradients in one tensor, for the update", "temporary")
        if self.owned.dtype != self.dtype:
            grad = buffer(self.tape, size_key(self.owned.dtype, flat(PARTITION)), self.owned.dtype,
                          f"partition/gradient in {self.owned.dtype}", "what the update reads", "temporary")
        self.owned.grad = Tensor(PARTITION, self.owned.dtype, flat(PARTITION), grad.storage)
        self.partition = None

    def after_step(self) -> None:
        if self.owned is not None:
            self.owned.grad = None


class Stage1(Buckets):
    """Optimizer states are divided. Gradients stay whole until the last micro-batch's backward has ended."""

    def after_backward(self) -> None:
        if not self.last or self.bucket is None:
            return
        self.free_gradients()
        self.flush()
        self.partition = self.make_partition()
        self.bucket = None

    def free_gradients(self) -> None:
        """reduce_gradients: each moves into the bucket, in order of definition, and its own memory goes."""
        fold = ""
        waiting: list[Parameter] = []
        for p in [*self.tape.parameters.values(), None]:
            if waiting and (p is None or p.fold != fold):
                with self.tape.repeated(fold):
                    for q in waiting:
                        q.grad = None
                waiting = []
            if p is not None:
                fold = p.fold
                waiting.append(p)


class Stage2(Buckets):
    """Gradients are divided too: each moves into the bucket as soon as it is there."""

    def __init__(self, tape: Tape, m: Structure) -> None:
        super().__init__(tape, m)
        self.first_is_done = False

    def arrived(self, p: Parameter) -> None:
        super().arrived(p)
        if p.grad is not None and p.grad.storage is not None:
            p.grad.storage.record.kind = "temporary"
        p.grad = None
        if self.partition is None:
            self.partition = self.make_partition()
        elif self.later is None and self.first_is_done:
            self.later = self.make_partition()

    def after_backward(self) -> None:
        if self.bucket is not None:
            self.flush()
        self.bucket = self.later = None
        self.first_is_done = True
