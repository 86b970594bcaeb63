"""FSDP2 on a fake rank: each layer a unit, the rest of the model in the root unit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard import _fsdp_collectives
from torch.distributed.fsdp._fully_shard._fsdp_param import FSDPParam

from peakmem.errors import Impossible
from peakmem.tables.kernels import GPU

from . import fake_gpu, hf, step
from .patches import gpu_answers
from .ranks import ranks
from .summary import summary
from .tracer import Tracer


def shard(
    model: torch.nn.Module,
    layers: Iterable[torch.nn.Module],
    mesh: DeviceMesh,
    compute: torch.dtype | None,
    reduce: torch.dtype | None,
    reshard: bool | str,
) -> None:
    """Shard a model over the mesh: every layer, then what is left.

    `compute` and `reduce` None: no such cast. `reshard`: whether layers are sharded again after their forward; "all":
    the root unit too.
    """
    policy = MixedPrecisionPolicy(param_dtype=compute, reduce_dtype=reduce)
    for layer in layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=bool(reshard))
    # By default the root unit stays whole between forward and backward.
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=True if reshard == "all" else None)
    check_dtypes(model)


def check_dtypes(model: torch.nn.Module) -> None:
    """Raise `Impossible` where a unit's trained parameters have several dtypes: its first forward would refuse them."""
    names = {module: name for name, module in model.named_modules()}
    for unit in (module for module in names if isinstance(module, FSDPModule)):
        parameters = [p for group in unit._get_fsdp_state()._fsdp_param_groups for p in group.fsdp_params]
        trained = [p.sharded_param for p in parameters if p.sharded_param.requires_grad]
        found = Counter(str(p.dtype).removeprefix("torch.") for p in trained)
        if len(found) > 1:
            raise Impossible(
                "--shard fsdp2: fully_shard takes trained parameters of one dtype in a unit, and "
                f"{names[unit] or 'the root unit'} has {' and '.join(dtype for dtype, _ in found.most_common())}; give "
                "all of them one dtype, for example --precision mixed or fp32"
            )


def trace(
    setting: Mapping[str, Any], model: torch.nn.Module, gpu: GPU | None = None, events: bool = False
) -> dict[str, Any]:
    """Trace one rank's step of a meta model and return its numbers, in bytes.

    `setting` is that of `record.trace` with ``gpus``, ``compute`` and ``reduce`` (dtypes or None),
    ``reshard_after_forward`` and ``sync`` ("every" micro-batch or only the "last").
    """
    tracer, counts, calls = traced(setting, model, gpu)
    return {"sdpa_kernels": calls, "n_params": counts[0], "n_trained": counts[1], **summary(tracer, events)}


def traced(
    setting: Mapping[str, Any], model: torch.nn.Module, gpu: GPU | None = None
) -> tuple[Tracer, tuple[int, int], dict[str, int]]:
    """Trace one rank's step of a meta model; return the tracer, parameter counts and the attention kernels' calls."""
    from . import record

    fake = fake_gpu.set_up(fallback=False)
    plan = record.step_of(setting)
    counts = record.parameter_counts(model)
    answers = gpu_answers(gpu or GPU(), setting.get("kernel", ""))
    with ranks(setting["gpus"]) as mesh, fake_gpu.fake_mode(), answers as sdpa:
        hf.move(model, fake.device)
        divide(setting, model, mesh)
        batch = record.batch_of(setting, model, fake.device)
        tracer = Tracer(fake.device, sdpa)
        plan = step.replace(plan, before=syncing(setting, model, plan.accumulation))
        tracer.keeps = record.kept_operations(setting)
        with collectives(tracer):
            step.run(tracer, model, batch, record.optimizer_of(setting, model), plan)
        calls = {name: count // plan.steps for name, count in sdpa.calls.items()}
    return tracer, counts, calls


def divide(setting: Mapping[str, Any], model: torch.nn.Module, mesh: DeviceMesh) -> None:
    """Shard the model as the setting says."""
    from . import record

    wanted = [None if setting[name] is None else record.DTYPES[setting[name]] for name in ("compute", "reduce")]
    shard(model, hf.all_layers_of(model), mesh, wanted[0], wanted[1], setting["reshard_after_forward"])


@contextmanager
def collectives(tracer: Tracer) -> Iterator[None]:
    """Mark what FSDP2 makes while the context lasts: what its collectives read from or write to, whole parameters, and
    gradients that wait to be reduced.
    """
    make = _fsdp_collectives.DefaultAllocMixin.allocate
    inputs = _fsdp_collectives._get_param_all_gather_inputs
    make_whole, cast = FSDPParam.init_all_gather_outputs, FSDPParam.to_accumulated_grad_if_needed

    def allocate(self: Any, *args: Any, **kwargs: Any) -> torch.Tensor:
        return mark(make(self, *args, **kwargs))

    def gather_inputs(parameters: Any) -> Any:
        found = inputs(parameters)
        for tensor in (tensor for each in found for tensor in each):
            mark(tensor)
        return found

    def gathered(parameter: FSDPParam, *args: Any) -> None:
        make_whole(parameter, *args)
        for tensor in parameter.all_gather_outputs:
            tracer.track(tensor, "unsharded")

    def waiting(parameter: FSDPParam) -> None:
        cast(parameter)
        for tensor in (parameter.unsharded_accumulated_grad, parameter.unsharded_param.grad):
            if tensor is not None:
                tracer.track(tensor, "gradient", name=f"{parameter._param_fqn or ''} gradient, whole")

    def mark(tensor: torch.Tensor) -> torch.Tensor:
        block = tracer.block_of(tensor)
        if block is not None and not block.kind:
            block.kind = "communication"
        return tensor

    with (
        mock.patch.object(_fsdp_collectives.DefaultAllocMixin, "allocate", allocate),
        mock.patch.object(_fsdp_collectives, "_get_param_all_gather_inputs", gather_inputs),
        mock.patch.object(FSDPParam, "init_all_gather_outputs", gathered),
        mock.patch.object(FSDPParam, "to_accumulated_grad_if_needed", waiting),
    ):
        yield


def syncing(setting: Mapping[str, Any], model: Any, count: int) -> Callable[[int], None]:
    """Return what is done before each of `count` micro-batches: gradients are reduced after each, or after the last."""
    if setting["sync"] != "last":
        return lambda micro_batch: None
    return lambda micro_batch: model.set_requires_gradient_sync(micro_batch == count - 1)
