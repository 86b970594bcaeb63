"""FSDP2: each layer, and what is left of the model, as a unit whose parameters lie in shards and are gathered for use.

Source: torch 2.13, distributed/fsdp/_fully_shard/: _fsdp_param_group.py (unshard, wait_for_unshard, pre_backward,
post_backward), _fsdp_collectives.py (foreach_all_gather, foreach_reduce), _fsdp_state.py (root, final callback).

- A shard is ceil(rows / GPUs) rows of its parameter on every GPU; the sums are padded accordingly.
- Gathering casts the shards into one flat input where they have another dtype, allocates one flat output, then
  copies it into the parameters. In forward the output lives until the next unit has copied; in backward it goes at
  once, and the unit before is gathered ahead (prefetch of one).
- After a unit's backward its parameters go first, then the scatter input of the unit before, and only then the
  new scatter input is made, while the gradients live. The shards' gradients are views into one flat result.
- The root is gathered first, never resharded in forward; its gradients wait for a callback at the end.
- With a policy (recipe `mixed`) shards, gradients of shards and states are fp32, gathered parameters 16-bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peakmem.estimate.layout import Dims, flat, rows_of, size_key
from peakmem.estimate.node import Node
from peakmem.estimate.ops import floats_cast
from peakmem.estimate.resizable import Resizable
from peakmem.estimate.shards import inner_first, one_dtype, padded
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Parameter, Record, Tape, Tensor
from peakmem.estimate.whole import Whole, buffer, total


class Unit:
    """Parameters that are gathered and reduced together."""

    def __init__(self, group: FullyShard, parameters: list[Parameter]) -> None:
        self.group, self.tape, self.parameters = group, group.tape, parameters
        layers, star, _ = parameters[0].full_name.partition(".*")
        self.name, self.fold = layers + star if star else "root", parameters[0].fold
        one_dtype(self.name, {p.full_name: p.owned.dtype for p in parameters if p.trained})
        self.whole = self.done = False
        self.gathering: Tensor | None = None
        self.waits = False
        self.unreduced: dict[int, Tensor] = {}  # whole gradients in the reduce dtype, without synchronisation

    def unshard(self) -> None:
        """foreach_all_gather: only the buffers; nothing where all is there or on its way."""
        if self.whole or self.waits:
            return
        self.waits = True
        if self.group.alone:
            return
        casts = [size_key(p.dtype, flat(p.owned.dims)) for p in self.parameters if p.owned.dtype != p.dtype]
        dtype, made = self.parameters[0].dtype, None
        if casts:
            made = buffer(self.tape, total(casts), dtype, f"{self.name}/gather input",
                          f"this GPU's shards of {self.name}, cast to {dtype}, on their way to all GPUs")
        self.gathering = self.gather_output()
        del made

    def gather_output(self) -> Tensor:
        return buffer(self.tape, total([padded(p, p.dtype) for p in self.parameters]), self.parameters[0].dtype,
                      f"{self.name}/gather output",
                      f"the shards of {self.name} from all GPUs, before each parameter is copied out")

    def wait(self, forward: bool) -> None:
        """wait_for_unshard: the copies, and then one gather output goes: in forward that of the unit before."""
        if not self.waits:
            return
        before = self.group.gathered if forward else None
        cast: Tensor | None = None
        for p in self.parameters:
            if self.group.alone:
                cast = self.copied(p)
            if isinstance(p.storage, Resizable):
                p.storage.fill()
        if forward:
            self.group.gathered = self.gathering
        self.gathering, self.waits, self.whole = None, False, True
        del before, cast

    def copied(self, p: Parameter) -> Tensor | None:
        """On one GPU: what the parameter is copied from, where it is not the shard itself."""
        if p.shard is None or p.shard.dtype == p.dtype:
            return None
        return buffer(self.tape, size_key(p.dtype, flat(p.shard.dims)), p.dtype, f"{p.full_name}, cast",
                      f"{p.full_name} in {p.dtype}, before it is copied")

    def gather_all(self, forward: bool) -> None:
        self.unshard()
        self.wait(forward)

    def reshard(self) -> None:
        """Free the gathered parameters, whoever saved them."""
        if self.whole:
            for p in self.parameters:
                if isinstance(p.storage, Resizable):
                    p.storage.empty()
        self.whole = False

    def watched(self, given: tuple[Any, ...]) -> tuple[Any, ...]:
        """RegisterPostBackwardFunction: the inputs under a node that runs when their gradients have arrived."""
        inputs = [x for x in given if isinstance(x, Tensor) and x.needs_grad]
        n = Node("post_backward", *inputs)
        for i in range(len(inputs)):
            n.gradient(i, "pass", slot=i)
        if n.active:
            n.hook = self.post_backward
        slots = {id(x): i for i, x in enumerate(inputs)}
        return tuple(n.output(x.detached(), slots[id(x)]) if id(x) in slots else x for x in given)

    def ends(self, y: Tensor) -> None:
        """The forward hook: note the order, and have the gradient of the output gather the unit again."""
        self.group.order.append(self)
        if y.node is not None:
            y.node.hook = self.pre_backward

    def pre_backward(self) -> None:
        """Gather, then begin to gather the unit before in forward."""
        self.gather_all(forward=False)
        at = self.group.order.index(self)
        if at:
            self.group.order[at - 1].unshard()

    def post_backward(self) -> None:
        """Gradients become gradients of shards, or stay whole where they are not synchronised."""
        self.done = True
        trained = [p for p in self.parameters if p.trained]
        for p in trained:
            if id(p) in self.unreduced and p.grad is not None:
                self.plain(p.grad)
                p.grad = None  # added in place
        if not self.group.synchronises:
            self.reshard()
            for p in trained:
                self.keep_whole(p)
            return
        found = [p for p in trained if p.grad is not None or id(p) in self.unreduced]
        grads = [self.taken(p) for p in found]
        self.reshard()
        self.group.scattered = None
        if grads:
            self.reduce(found, grads)

    def keep_whole(self, p: Parameter) -> None:
        """to_accumulated_grad_if_needed: the whole gradient, in the dtype of the reduction."""
        wanted = self.group.m.reduce_dtype
        if p.grad is None or not wanted or p.grad.dtype == wanted:
            return
        old, p.grad = p.grad, None
        self.plain(old)
        self.unreduced[id(p)] = buffer(self.tape, size_key(wanted, flat(p.dims)), wanted,
                                       f"{p.full_name} gradient, whole",
                                       f"{p.full_name}: what micro-batches found before gradients are reduced",
                                       "gradients")

    def taken(self, p: Parameter) -> Tensor:
        """The whole gradient, out of the parameter's hands."""
        found = self.unreduced.pop(id(p), None)
        if found is None:
            found, p.grad = p.grad, None
            assert found is not None
            if self.group.m.sync_each_batch or self.group.m.micro_batches == 1:
                self.plain(found)
        return found

    @staticmethod
    def plain(gradient: Tensor) -> None:
        """A whole gradient is on its way only."""
        if gradient.storage:
            gradient.storage.record.kind = "temporary"
            gradient.storage.record.name += ", whole"

    def reduce(self, parameters: list[Parameter], grads: list[Tensor]) -> None:
        """foreach_reduce: scatter input, result, a copy in the shards' dtype; gradients are views into that."""
        tape, wanted = self.tape, self.group.m.reduce_dtype or grads[0].dtype
        shards = [p.shard for p in parameters if p.shard is not None]
        source = buffer(tape, total([padded(p, wanted) for p in parameters]), wanted, f"{self.name}/scatter input",
                        f"whole gradients of {self.name} in {wanted}, being added up over all GPUs")
        last = None if self.group.alone else grads[-1]  # a loop variable there
        grads.clear()
        result = self.flat(shards, wanted)
        if wanted != shards[0].dtype:
            result = self.flat(shards, shards[0].dtype, "temporary")
        if result.storage and any(shard.grad is None for shard in shards):  # otherwise they are added to those
            result.storage.record.kind = "gradients"
        self.keep_shards(shards, result)
        self.group.scattered = source
        del last

    def keep_shards(self, shards: list[Parameter], result: Tensor) -> None:
        """The result's views become gradients, or are added to those that are there."""
        for shard in shards:
            if shard.grad is None:
                shard.grad = Tensor(shard.dims, shard.dtype, shard.memory, result.storage, True)

    def flat(self, shards: list[Parameter], dtype: str, kind: str = "communication") -> Tensor:
        return buffer(self.tape, total([size_key(dtype, flat(shard.dims)) for shard in shards]), dtype,
                      f"{self.name}/gradients of shards in {dtype}",
                      f"this GPU's part of the gradients of {self.name}: one buffer, read by the optimizer", kind)


class FullyShard(Whole):
    """fully_shard() on every layer, then on the model."""

    source = "torch 2.13 distributed/fsdp/_fully_shard/"
    unit_type: type[Unit] = Unit

    def __init__(self, tape: Tape, m: Structure) -> None:
        super().__init__(tape, m)
        tape.wrap, tape.leave = self.layer, self.leave
        self.alone = "w" in tape.ones
        self.partial_norms = True
        self.units: dict[str, Unit] = {}
        self.order: list[Unit] = []  # as they ended in this forward
        self.gathered: Tensor | None = None  # the last unit's gather output, until the next has copied its own
        self.scattered: Tensor | None = None  # the last unit's scatter input, until the next makes its own
        self.synchronises = True
        self.left = False

    def parameter(self, shape: Dims, dtype: str, name: str, trained: bool, fold: str) -> Parameter:
        """The shard, and a parameter without memory that the model computes with."""
        policy = self.m.shard_dtype
        own = policy if policy and trained else dtype
        dtype = self.m.dtype if policy else dtype
        rows = rows_of(shape)
        self.tape.purpose = "this GPU's shard, from which its unit is gathered for each forward and backward"
        shard = Parameter(rows, own, self.tape.new(rows, own, None, name).storage, name, trained, fold)
        self.tape.purpose = ""
        key = size_key(dtype, (*flat(rows), "w"))
        record = Record(key, f"{name}, gathered", "weights", fold, False, self.tape.scope)
        record.purpose, record.source = "whole while its unit computes", self.source
        whole = Parameter(shape, dtype, Resizable(self.tape, record), name, trained, fold)
        whole.shard = shard
        return whole

    def unit(self, layer: str) -> Unit:
        """The unit of a layer; of what is in no layer, if the name of the layer is empty."""
        if layer not in self.units:
            own = [p for key, p in self.tape.parameters.items()
                   if p.shard is not None and (key.startswith(layer) if layer else ":" not in key)]
            self.units[layer] = self.unit_type(self, inner_first(own))
        return self.units[layer]

    def make_gradients(self) -> bool:
        """Views into one flat buffer for each unit."""
        layers = dict.fromkeys(key[:key.find(":") + 1] for key in self.tape.parameters)
        for layer in layers:
            unit = self.unit(layer)
            shards = [p.shard for p in unit.parameters if p.trained and p.shard is not None and p.shard.reached]
            if shards:
                with self.tape.repeated(unit.fold):
                    unit.keep_shards(shards, unit.flat(shards, shards[0].dtype, "gradients"))
        return True

    def begin(self, micro_batch: int) -> None:
        """set_requires_gradient_sync(): every micro-batch, or the last one alone."""
        self.synchronises = self.m.sync_each_batch or micro_batch == self.m.micro_batches - 1

    def layer(self, body: Callable[..., Tensor], x: Tensor, *others: object) -> Tensor:
        """A layer between its hooks. A policy casts what it is called with first (cast_forward_inputs)."""
        unit = self.unit(self.tape.layer)
        given = floats_cast((x, *others), self.m.shard_dtype and self.m.dtype)
        del x, others
        unit.gather_all(forward=True)
        given = unit.watched(given)
        y = body(*given)
        if self.m.reshard != "none":
            unit.reshard()
        unit.ends(y)
        return y

    def model(self, run: Callable[[], Tensor]) -> Tensor:
        """The root: gathered before everything, and left whole."""
        self.left = False
        self.unit("").gather_all(forward=True)
        loss = run()
        self.leave(loss)
        return loss

    def leave(self, y: Tensor) -> None:
        """The root's forward hook, on what the model returns."""
        if not self.left:
            self.left = True
            root = self.units[""]
            if self.m.reshard == "all":
                root.reshard()
            root.ends(y)
            self.gathered = None

    def after_backward(self) -> None:
        """_root_post_backward_final_callback: the root, units whose input needs no gradient, what is left over."""
        for unit in self.units.values():
            if not unit.done:
                with self.tape.repeated(unit.fold):
                    unit.post_backward()
        for unit in self.units.values():
            unit.done, unit.gathering = False, None
        self.order.clear()
        self.scattered = None
