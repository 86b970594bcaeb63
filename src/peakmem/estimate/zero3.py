"""ZeRO stage 3, as DeepSpeed 0.19 runs it: parameters are divided too, and gathered layer by layer.

Source: deepspeed 0.19.8, runtime/zero/stage3.py, partition_parameters.py (all_gather_coalesced),
partitioned_param_coordinator.py (fetch_sub_module, release_sub_module).

- Every parameter is cut into ceil(elements / GPUs). Those of at most `param_persistence_threshold` (100,000)
  elements also stay whole all the time.
- The reduce bucket and the flat partition of gradients are there for the whole run. A gradient moves into the
  bucket on arrival; the last reduction concatenates it and takes this GPU's part.
- The optimizer updates one flat partition in the master dtype; without a master dtype that is the parameters' own.
- A layer is gathered as one (set_z3_leaf_modules): one flat buffer, then each parameter is put together from it
  and the buffer goes. It is released after its forward and after its backward. A module outside the layers is
  gathered into a buffer that is its parameter. Those before the layers are released when the first layer begins and
  gathered again for their backward; those behind are met again at once and stay until backward has left them.
- Nothing else is fetched ahead or kept for later: what DeepSpeed's defaults add is in a note.
- `step`: gradients in fp64 for their norms, one after another; one sub-group's flattened, then in the master's dtype.

Compared with runs of DeepSpeed itself on the CPU, event by event. Not in the tape: copies of a bucket that is full
before the end.
"""

from __future__ import annotations

from collections.abc import Callable

from peakmem.estimate.layout import BYTES, Dims, Memory, flat, size_key
from peakmem.estimate.node import Node
from peakmem.estimate.resizable import Resizable
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Key, Parameter, Record, Tape, Tensor
from peakmem.estimate.whole import Whole, buffer, total

PARTITION: Dims = (("partition",),)
PERSISTS = 100_000
SUB_GROUP = "1000000000"  # sub_group_size: how many elements one update takes at once


def cut(shape: Dims) -> Memory:
    """One GPU's part of a parameter's elements."""
    return ("*".join(f"({x})" if "+" in x or "-" in x else x for x in flat(shape)) + "/w",) if flat(shape) else ()


def if_large(shape: Dims, large: Key, small: Key = (0, ())) -> Key:
    """One size for parameters that are gathered, another for those that persist."""
    return ("from", PERSISTS + 1, 1, (flat(shape),), large, small)


class Stage3(Whole):
    """Optimizer states, gradients and parameters are divided."""

    source = "deepspeed 0.19.8 runtime/zero/stage3.py, partition_parameters.py"

    def __init__(self, tape: Tape, m: Structure) -> None:
        super().__init__(tape, m)
        tape.wrap, tape.leave, tape.arrived, tape.fetch = self.layer, None, self.arrived, self.fetch
        self.alone = "w" in tape.ones
        self.owned: Parameter | None = None
        self.bucket: Tensor | None = None
        self.gradients: Tensor | None = None
        self.outside: list[Parameter] = []  # gathered, and in no layer
        self.before: list[Parameter] = []  # of those, what ran before the first layer
        self.resident: list[Tensor] = []
        self.layers = 0
        self.dtype = ""
        self.gradients_at = "device"

    def parameter(self, shape: Dims, dtype: str, name: str, trained: bool, fold: str) -> Parameter:
        """The part on this GPU; whole memory that comes and goes; whole memory that persists, where it is small."""
        if trained and self.owned is None:
            self.make_flat(dtype)
        self.tape.purpose = "this GPU's part, from which it is gathered for each forward and backward"
        with self.weight_place():
            part = self.tape.new((cut(shape),), dtype, None, name)
        self.tape.purpose = "small enough to stay whole all the time"
        resident = part if self.alone else self.tape.new(shape, dtype, None, f"{name}, persistent",
                                 if_large(shape, (0, ()), size_key(dtype, flat(shape))))
        self.tape.purpose = ""
        whole = flat(shape) if ".*" in name else (*cut(shape), "w")  # alone, it is the padded buffer itself
        record = Record(if_large(shape, size_key(dtype, whole)), f"{name}, gathered", "weights", fold, False,
                        self.tape.scope)
        record.purpose, record.source = "whole while its layer or module computes", self.source
        p = Parameter(shape, dtype, Resizable(self.tape, record), name, trained, fold)
        p.shard = self.owned if trained else None
        self.resident += [part, resident]
        return p

    def make_flat(self, dtype: str) -> None:
        """fp32_partitioned_groups_flat, the bucket, and grad_partitions_flat_buffer."""
        tape, own = self.tape, self.m.master or dtype
        self.dtype = dtype
        self.owned = Parameter(PARTITION, own, None, "partition", True, "")
        with self.optimizer_place():
            if own != dtype:
                self.owned.storage = buffer(tape, size_key(own, flat(PARTITION)), own, "partition/master",
                                            f"this GPU's part of the weights in {own}: what the optimizer updates",
                                            "optimizer_state").storage
        with self.placed(self.gradients_at):
            self.gradients = buffer(tape, size_key(dtype, flat(PARTITION)), dtype, "partition/gradient",
                                    "this GPU's part of the reduced gradients, there for the whole run", "gradients")
        self.bucket = buffer(tape, (BYTES[dtype], ("bucket",)), dtype, "reduce bucket",
                             "gradients on their way to all GPUs: DeepSpeed's reduce_bucket_size elements, there for "
                             "the whole run")

    def gather(self, parameters: list[Parameter], name: str) -> None:
        """all_gather_coalesced, then wait(): each parameter is put together from the parts of all GPUs."""
        if self.alone:  # the part is the parameter
            return
        joined = self.gather_output(parameters, name) if len(parameters) > 1 else None
        self.fill(parameters)
        del joined

    def gather_output(self, parameters: list[Parameter], name: str) -> Tensor:
        return buffer(self.tape, total([self.if_gathered(p, size_key(p.dtype, (*cut(p.dims), "w")))
                                        for p in parameters]), parameters[0].dtype, f"{name}/gather output",
                      f"the parts of {name} from all GPUs, before they are joined")

    @staticmethod
    def if_gathered(p: Parameter, size: Key) -> Key:
        return if_large(p.dims, size)

    @staticmethod
    def fill(parameters: list[Parameter]) -> None:
        for p in parameters:
            if isinstance(p.storage, Resizable):
                p.storage.fill()

    @staticmethod
    def release(parameters: list[Parameter]) -> None:
        for p in parameters:
            if isinstance(p.storage, Resizable):
                p.storage.empty()

    def layer(self, body: Callable[..., Tensor], x: Tensor, *others: object) -> Tensor:
        """A layer between its hooks, forward and backward."""
        tape = self.tape
        first = not self.layers
        if first:
            self.before = self.outside
            self.release_outside()
        self.layers += 1
        own = [p for key, p in tape.parameters.items() if key.startswith(tape.layer)]
        name = tape.scope
        self.gather(own, name)
        n = Node("post_backward", x)
        n.gradient(0, "pass")
        if n.active:
            n.hook = lambda: self.exit(own, first)
        y = body(n.output(x.detached()), *others)
        self.release(own)
        if y.node is not None:
            y.node.hook = lambda: self.enter(own, name)
        return y

    def enter(self, own: list[Parameter], name: str) -> None:
        """A layer's backward begins: what is outside the layers has been used."""
        self.release_outside()
        self.gather(own, name)

    def exit(self, own: list[Parameter], first: bool) -> None:
        """A layer's backward ends; after the first layer's, modules before it are gathered once more."""
        self.release(own)
        for p in self.before if first else ():
            self.fetch_module(p)

    def fetch(self, p: Parameter) -> None:
        """A module outside the layers reads its parameter."""
        if not self.tape.layer:
            self.fetch_module(p)

    def fetch_module(self, p: Parameter) -> None:
        if isinstance(p.storage, Resizable) and p.storage.index < 0:
            self.gather([p], p.full_name)
            self.outside.append(p)

    def release_outside(self) -> None:
        self.release(self.outside)
        self.outside = []

    def arrived(self, p: Parameter) -> None:
        """The gradient moves into the bucket."""
        if p.grad is not None and p.grad.storage is not None:
            p.grad.storage.record.kind = "temporary"
        p.grad = None

    def after_backward(self) -> None:
        """The last reduction: reduce_scatter_coalesced joins what is in the bucket and takes this GPU's part."""
        self.layers = 0
        self.release_outside()
        for p in self.tape.parameters.values():
            if isinstance(p.storage, Resizable) and p.storage.index >= 0:
                with self.tape.repeated(p.fold):
                    p.storage.empty()
        if self.bucket is None or self.alone:
            return
        width = BYTES[self.dtype]
        joined = buffer(self.tape, ("smaller", (width, ("bucket",)), (width, ("trained",))), self.dtype,
                        "reduce bucket, joined", "what the last reduce-scatter adds up")
        part = buffer(self.tape, ("smaller", (width, ("bucket/w",)), (width, ("trained/w",))), self.dtype,
                      "reduce bucket, this GPU's part", "the result of the last reduce-scatter")
        del joined, part

    def before_step(self) -> None:
        """_prepare_fp32_grad_for_sub_group: one sub-group's gradients flattened, then in the master's dtype."""
        if self.owned is None:
            return
        buffer(self.tape, (8, ("largest/w",)), "fp64", "partition/gradient in fp64",
               "one gradient after another, for its norm", "temporary")
        grad = self.sub_group(self.dtype, "flattened")
        if self.owned.dtype != self.dtype:
            grad = self.sub_group(self.owned.dtype, f"in {self.owned.dtype}")
        self.owned.grad = Tensor(PARTITION, self.owned.dtype, flat(PARTITION), grad.storage)

    def sub_group(self, dtype: str, what: str) -> Tensor:
        width = BYTES[dtype]
        return buffer(self.tape, ("smaller", (width, ("partition",)), (width, (SUB_GROUP,))), dtype,
                      f"partition/gradient of a sub-group, {what}", "what one update reads", "temporary")

    def after_step(self) -> None:
        if self.owned is not None:
            self.owned.grad = None
