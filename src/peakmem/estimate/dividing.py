"""What dividing over GPUs, and offload, make of a recipe, and which settings they refuse.

FSDP2 under `mixed`: the sharded parameters are the fp32 master weights, units are gathered in bf16, gradients are
reduced in fp32 (torch's own example of a policy, and torchtitan's only choice); a frozen parameter keeps its 16-bit
shards. Every other recipe runs without a policy: units are gathered and reduced in the parameters' dtype.

Offload without --shard runs on one GPU as DeepSpeed does it: stage 2 for the optimizer, stage 3 for weights too.
Under --precision megatron stage 1 is Megatron's distributed optimizer: its own gradient buffer, no bucket.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from peakmem.errors import Impossible
from peakmem.estimate.structure import Structure
from peakmem.immutable import replace
from peakmem.quantity import exact
from peakmem.setup import Setup
from peakmem.tables.precisions import WIDTH, Precision

ZERO = ("zero1", "zero2", "zero3")
FLAT_REFUSES = ("adafactor", "muon")


def applied(structure: Structure, setup: Setup, recipe: Precision) -> Structure:
    """The structure with the recipe's dtypes where this way of dividing puts them. Errors: Impossible."""
    refuse(setup, recipe)
    shard = way_of(setup)
    if shard in ZERO:
        # DeepSpeed's engine drops gradients whatever zero_grad is told.
        named = "distributed optimizer" if recipe.gradient_buffer else shard
        return replace(structure, shard=named, set_to_none=True)
    if shard != "fsdp2":
        return structure
    reduced = "fp32" if recipe.master else ""
    reduced = reduced if setup.reduce_dtype == "auto" else setup.reduce_dtype
    if not recipe.master:
        return replace(structure, reduce_dtype=reduced)
    # The optimizer's parameters are the fp32 shards themselves, and its states follow them.
    states = "" if structure.state_dtype == recipe.master else structure.state_dtype
    return replace(structure, master="", shard_dtype=recipe.master, reduce_dtype=reduced, state_dtype=states)


def way_of(setup: Setup) -> str:
    """How parameters are divided: as asked, or as offload on one GPU needs it."""
    if setup.shard == "none" and setup.offload != "none":
        return "zero3" if setup.offload != "optimizer" else "zero2"
    return setup.shard


def letters_of(structure: Structure, setup: Setup, numbers: Mapping[str, Any]) -> dict[str, Any]:
    """Letters that only divided runs need."""
    if structure.shard == "ddp":
        from peakmem.estimate.replicas import bucket_bytes

        return {"buckets": bucket_bytes(structure, numbers)}
    if way_of(setup) not in ZERO:
        return {}
    from peakmem.estimate.counts import counted

    return {**counted(structure, numbers), "bucket": setup.reduce_bucket}


def fused_update(setup: Setup, fused: bool) -> bool:
    """Whether the step updates master weights in one pass. Under FSDP2 a plain torch optimizer runs on the shards."""
    return fused and setup.shard != "fsdp2"


def different_batches(setup: Setup) -> int:
    """How many micro-batches differ from each other: the first, all others, and the last if it alone reduces."""
    return 3 if setup.shard == "zero1" or setup.shard == "fsdp2" and not setup.sync_each_batch else 2


def refuse(setup: Setup, recipe: Precision) -> None:
    """Settings that no stack runs together, in one line each."""
    shard, offload = setup.shard, setup.offload
    if setup.run == "inference" and (shard != "none" or offload != "none"):
        raise Impossible(f"--run inference goes with neither --shard nor --offload: got {shard} and {offload}, "
                         "which are about training")
    if recipe.gradient_buffer and (shard not in ("none", "zero1") or offload != "none"):
        raise Impossible(f"--precision {recipe.name} has Megatron's gradient buffer: it goes with --shard none or "
                         "zero1 (its distributed optimizer) and no offload; else take --precision mixed")
    if way_of(setup) in ZERO and setup.optimizer in FLAT_REFUSES:
        raise Impossible(f"--optimizer {setup.optimizer} needs matrices, and DeepSpeed's partitions are flat: "
                         "take --shard fsdp2, or adamw")
    if offload == "none":
        return
    if shard == "ddp":
        raise Impossible(f"--offload {offload} with --shard ddp: DistributedDataParallel moves nothing to the host; "
                         "take --shard zero1, zero2, zero3 or fsdp2")
    if shard == "none" and setup.gpus > 1:
        raise Impossible(f"--offload {offload} on {setup.gpus} GPUs: say how they share, with --shard zero1, zero2, "
                         "zero3 or fsdp2")
    if shard in ("zero1", "zero2") and offload != "optimizer":
        raise Impossible(f"--offload {offload} with --shard {shard}: DeepSpeed moves weights, and uses disks, "
                         "at stage 3 alone; take --shard zero3, or --offload optimizer")
    if shard == "fsdp2" and offload != "optimizer+weights":
        raise Impossible(f"--offload {offload} with --shard fsdp2: its CPUOffloadPolicy moves shards, gradients and "
                         "states together, to the host; take --offload optimizer+weights, or --shard zero3")


def notes_on(setup: Setup, recipe: Precision) -> Iterator[str]:
    """What was assumed about sharding and offload, and what other settings of those stacks would hold."""
    shard, gpus = way_of(setup), f"{setup.gpus} GPU{'s' if setup.gpus > 1 else ''}"
    if shard == "ddp":
        yield (f"ddp on {gpus}: torch 2.13 DistributedDataParallel with its defaults; with "
               "gradient_as_bucket_view=True the gradients would be views of the buckets, and one copy of them less. "
               "Not counted: the copy of a module's buffers that is broadcast before each forward")
    if shard == "fsdp2":
        policy = ("shards, their gradients and states are fp32, units are gathered in 16 bit, gradients reduced in "
                  f"{'fp32' if setup.reduce_dtype == 'auto' else setup.reduce_dtype}" if recipe.master else
                  "no mixed-precision policy: units are gathered and reduced in the weights' dtype")
        yield (f"fsdp2 on {gpus}: torch 2.13 fully_shard on each layer and on the model; {policy}. Its buffers come "
               "from streams of their own, so reserved memory exceeds the tensors by more than usual")
    if shard in ("zero1", "zero2") and recipe.gradient_buffer:
        yield f"zero1 under {recipe.name} on {gpus}: Megatron-LM's distributed optimizer, with its fp32 gradient buffer"
    elif shard in ZERO:
        width = WIDTH[recipe.weights]
        bucket = setup.reduce_bucket * width
        yield (f"{shard} on {gpus}: DeepSpeed 0.19.8 with its defaults; the reduce bucket of {setup.reduce_bucket:,} "
               f"elements, {exact(bucket)}, is there whatever the model's size. Not counted: the copy of a bucket "
               f"that is full before backward ends, up to {exact(bucket)} for a moment")
    if shard == "zero3":
        yield ("zero3: each layer is gathered as one (set_z3_leaf_modules) and released after use; DeepSpeed's "
               "stage3_prefetch_bucket_size adds up to 5e7 elements, stage3_max_reuse_distance keeps the last 5e8 "
               f"elements gathered between forward and backward: up to {exact(550_000_000 * width)} more")
    if setup.offload != "none":
        engine = "FSDP2's CPUOffloadPolicy" if shard == "fsdp2" else f"DeepSpeed 0.19.8, stage {shard[-1]}"
        yield (f"offload {setup.offload}: {engine}; the optimizer runs on the host. Host and disk bytes are lines of "
               "their own and in no total of the device")
