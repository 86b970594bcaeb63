"""What dividing over GPUs, and offload, make of a recipe, and which settings they refuse.

FSDP2 under `mixed`: the sharded parameters are the fp32 master weights, units are gathered in bf16, gradients are
reduced in fp32 (torch's own example of a policy, and torchtitan's only choice); a frozen parameter keeps its 16-bit
shards. Every other recipe runs without a policy: units are gathered and reduced in the parameters' dtype.
"""

from __future__ import annotations

from dataclasses import replace

from peakmem.errors import Impossible
from peakmem.estimate.structure import Structure
from peakmem.setup import Setup
from peakmem.tables.precisions import Precision


def applied(structure: Structure, setup: Setup, recipe: Precision) -> Structure:
    """The structure with the recipe's dtypes where this way of dividing puts them. Errors: Impossible."""
    refuse(setup, recipe)
    reduced = "fp32" if recipe.master else ""
    reduced = reduced if setup.reduce_dtype == "auto" else setup.reduce_dtype
    if setup.shard == "fsdp2" and recipe.master:
        # The optimizer's parameters are the fp32 shards themselves, and its states follow them.
        return replace(structure, master="", shard_dtype=recipe.master, reduce_dtype=reduced, state_dtype=(
            "" if structure.state_dtype == recipe.master else structure.state_dtype))
    if setup.shard == "fsdp2":
        return replace(structure, reduce_dtype=reduced)
    return structure


def fused_update(setup: Setup, fused: bool) -> bool:
    """Whether the step updates master weights in one pass. Under FSDP2 a plain torch optimizer runs on the shards."""
    return fused and setup.shard != "fsdp2"


def different_batches(setup: Setup) -> int:
    """How many micro-batches differ from each other: the first, all others, and the last if it alone reduces."""
    return 3 if setup.shard == "zero1" or setup.shard == "fsdp2" and not setup.sync_each_batch else 2


def refuse(setup: Setup, recipe: Precision) -> None:
    """Settings that no stack runs together, in one line each."""
    if setup.shard == "fsdp2" and recipe.gradient_buffer:
        raise Impossible(f"--precision {recipe.name} is Megatron's gradient buffer and --shard fsdp2 makes its own "
                         "gradients of shards: take --precision mixed, or --shard zero1")
