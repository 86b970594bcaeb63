"""Offload: what lies in the host's memory or on a disk, and what stays behind on the device.

Sources: deepspeed 0.19.8, runtime/zero/stage_1_and_2.py (cpu_offload), stage3.py (offload_optimizer, offload_param),
offload_config.py, runtime/swap_tensor/; torch 2.13, distributed/fsdp/_fully_shard/ (CPUOffloadPolicy).

- The optimizer runs on the host: nothing of its step is on the device.
- DeepSpeed 1, 2: master, states, a gradient partition in the master's dtype and a copy of the weights' partition in
  their own lie in pinned host memory; the device keeps one buffer as large as the largest parameter.
- DeepSpeed 3: the flat gradient partition is on the host too; parameters, if they are offloaded, are copied to the
  device part by part before they are gathered. On a disk lie master, states and the master's gradients, or the
  parameters; the host holds the buffers through which they pass.
- FSDP2: shards, their gradients and states; a unit's shards are copied to the device one by one, then cast.
"""

from __future__ import annotations

from peakmem.estimate.layout import BYTES, Dims, flat, size_key
from peakmem.estimate.sharding import FullyShard, Unit
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Key, Parameter, Tape, Tensor
from peakmem.estimate.whole import Whole, buffer, total
from peakmem.estimate.zero import PARTITION, Buckets, Stage1, Stage2
from peakmem.estimate.zero3 import PARTITION as PARTS, SUB_GROUP, Stage3, cut

STATE_BUFFERS, WEIGHT_BUFFERS, WEIGHT_BUFFER = 4, 5, "100000000"
"""offload_optimizer.buffer_count, offload_param.buffer_count and buffer_size: DeepSpeed's defaults."""


def on_host(ways: Whole, key: Key, dtype: str, name: str, why: str, kind: str) -> None:
    """A line in the host's memory."""
    outer, ways.tape.place = ways.tape.place, "host"
    buffer(ways.tape, key, dtype, name, why, kind)
    ways.tape.place = outer


class HostOptimizer(Buckets):
    """Stages 1 and 2 with offload_optimizer."""

    def __init__(self, tape: Tape, m: Structure) -> None:
        super().__init__(tape, m)
        self.states_at = "host"
        self.staging: Tensor | None = None

    def make_flat(self, dtype: str) -> None:
        super().make_flat(dtype)
        own = self.m.master or dtype
        on_host(self, size_key(own, flat(PARTITION)), own, f"partition/gradient in {own}",
                "what the update on the host reads", "gradients")
        on_host(self, size_key(dtype, flat(PARTITION)), dtype, f"partition/weights in {dtype}",
                "the updated weights on their way back to the device", "communication")
        on_host(self, (BYTES[dtype], ("largest",)), dtype, "gradient staging buffer, host",
                "one gradient, as large as the largest parameter, on its way", "communication")
        if self.m.micro_batches > 1:
            on_host(self, size_key(dtype, flat(PARTITION)), dtype, "partition/gradient, accumulated",
                    "gradients of earlier micro-batches", "gradients")
        self.staging = buffer(self.tape, (BYTES[dtype], ("largest",)), dtype, "gradient staging buffer",
                              "one gradient, as large as the largest parameter, on its way to the host and back")

    def make_partition(self) -> Tensor | None:
        """Owned gradients go to the host."""
        return None

    def flush(self) -> None:
        """The last reduction; norms are taken before a gradient leaves (set_norm_for_param_grad_in_gpu)."""
        super().flush()
        if self.last:
            self.norm()


class OffloadedStage1(HostOptimizer, Stage1):
    """Optimizer states of stage 1 on the host."""


class OffloadedStage2(HostOptimizer, Stage2):
    """Optimizer states and gradients of stage 2 on the host."""


class OffloadedStage3(Stage3):
    """Optimizer states of stage 3 on the host or on a disk; with them, if asked, the parameters."""

    def __init__(self, tape: Tape, m: Structure) -> None:
        super().__init__(tape, m)
        self.disk = m.offload.startswith("disk")
        self.states_at = "disk" if self.disk else "host"
        self.gradients_at = "host"
        self.moves = m.offload.endswith("weights")
        if self.moves:
            self.weights_at = self.states_at

    def make_flat(self, dtype: str) -> None:
        super().make_flat(dtype)
        own = self.m.master or dtype
        with self.optimizer_place():
            if own == dtype:
                buffer(self.tape, size_key(own, flat(PARTS)), own, "partition/master",
                       "this GPU's part of the weights where the optimizer updates it", "optimizer_state")
            buffer(self.tape, size_key(own, flat(PARTS)), own, f"partition/gradient in {own}",
                   "what the update on the host reads", "gradients")
        if self.disk:
            whole: Key = ("smaller", (BYTES[own] * STATE_BUFFERS, ("partition",)),
                          (BYTES[own] * STATE_BUFFERS, (SUB_GROUP,)))
            on_host(self, whole, own, "swap buffers of the optimizer",
                    f"{STATE_BUFFERS} buffers of one sub-group, between disk and update", "communication")
        if self.disk and self.moves:
            on_host(self, (BYTES[dtype] * WEIGHT_BUFFERS, (WEIGHT_BUFFER,)), dtype, "swap buffers of the weights",
                    f"{WEIGHT_BUFFERS} buffers of {WEIGHT_BUFFER} elements, between disk and device", "communication")

    def gather(self, parameters: list[Parameter], name: str) -> None:
        if not self.moves:
            super().gather(parameters, name)
            return
        joined = parts = None
        single = len(parameters) == 1
        if single:
            self.fill(parameters)
        if not self.alone:
            joined = None if single else self.gather_output(parameters, name)
            parts = buffer(self.tape, total([self.if_gathered(p, (BYTES[p.dtype], cut(p.dims))) for p in parameters]),
                           parameters[0].dtype, f"{name}/parts on the device",
                           f"this GPU's parts of {name}, copied from where they lie")
        del parts
        if not single:
            self.fill(parameters)
        del joined

    def before_step(self) -> None:
        """The host updates."""


class OffloadedUnit(Unit):
    """A unit whose shards lie on the host."""

    def unshard(self) -> None:
        """all_gather_inputs of each parameter: its shard on the device, then in the dtype of the computation."""
        if self.whole or self.waits:
            return
        if self.group.alone:
            self.waits = True
            return
        self.waits = True
        inputs = [self.moved(p) for p in self.parameters]
        self.gathering = self.gather_output()
        inputs.clear()

    def moved(self, p: Parameter) -> Tensor:
        assert p.shard is not None
        made = buffer(self.tape, size_key(p.shard.dtype, flat(p.shard.dims)), p.shard.dtype,
                      f"{p.full_name}/shard on the device", f"this GPU's shard of {p.full_name}, from the host")
        if p.shard.dtype != p.dtype:
            made = buffer(self.tape, size_key(p.dtype, flat(p.shard.dims)), p.dtype,
                          f"{p.full_name}/shard in {p.dtype}", f"the shard of {p.full_name}, before it is gathered")
        return made

    def copied(self, p: Parameter) -> Tensor | None:
        return self.moved(p)

    def keep_shards(self, shards: list[Parameter], result: Tensor) -> None:
        """Each shard's gradient is copied to the host; the flat result goes."""
        for shard in shards:
            if shard.grad is None:
                on_host(self.group, size_key(shard.dtype, flat(shard.dims)), shard.dtype,
                        f"{shard.full_name} gradient", "read by the optimizer on the host", "gradients")
                shard.grad = Tensor(shard.dims, shard.dtype, shard.memory, None)


class OffloadedFullyShard(FullyShard):
    """fully_shard(offload_policy=CPUOffloadPolicy()) on every unit."""

    unit_type = OffloadedUnit

    def __init__(self, tape: Tape, m: Structure) -> None:
        super().__init__(tape, m)
        self.states_at = self.weights_at = "host"

    def parameter(self, shape: Dims, dtype: str, name: str, trained: bool, fold: str) -> Parameter:
        with self.weight_place():
            return super().parameter(shape, dtype, name, trained, fold)
