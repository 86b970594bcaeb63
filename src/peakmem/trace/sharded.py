"""FSDP2 on a fake rank: each layer a unit, the rest of the model in the root unit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

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
    reshard: bool,
) -> None:
    """Shard a model over the mesh: every layer, then what is left. `compute` and `reduce` None: no such cast."""
    policy = MixedPrecisionPolicy(param_dtype=compute, reduce_dtype=reduce)
    for layer in layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy, reshard_after_forward=reshard)
    fully_shard(model, mesh=mesh, mp_policy=policy)  # by default the root unit stays whole between forward and backward


def layers_of(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Return the modules of the model's longest module list, its layers."""
    lists = [list(m) for m in model.modules() if isinstance(m, torch.nn.ModuleList)]
    if not lists:
        raise ValueError("the model has no list of layers to shard")
    return max(lists, key=len)


def trace(
    setting: Mapping[str, Any], model: torch.nn.Module, gpu: GPU | None = None, events: bool = False
) -> dict[str, Any]:
    """Trace one rank's step of a meta model and return its numbers, in bytes.

    `setting` is that of `record.trace` with ``gpus``, ``compute`` and ``reduce`` (dtypes or None),
    ``reshard_after_forward`` and ``sync`` ("every" micro-batch or only the "last").
    """
    from . import record

    fake = fake_gpu.set_up(fallback=False)
    wanted = [None if setting[name] is None else record.DTYPES[setting[name]] for name in ("compute", "reduce")]
    plan = record.step_of(setting)
    parameters = list(dict.fromkeys(model.parameters()))
    counts = {
        "n_params": sum(p.numel() for p in parameters),
        "n_trained": sum(p.numel() for p in parameters if p.requires_grad),
    }
    with (
        ranks(setting["gpus"]) as mesh,
        FakeTensorMode(allow_non_fake_inputs=True),
        gpu_answers(gpu or GPU()) as sdpa,
    ):
        hf.move(model, fake.device)
        shard(model, layers_of(model), mesh, wanted[0], wanted[1], setting["reshard_after_forward"])
        batch = record.batch_of(setting, model, fake.device)
        tracer = Tracer(fake.device, sdpa)
        if setting["sync"] == "last":
            plan = step.replace(plan, before=_last_only(model, plan.accumulation))
        step.run(tracer, model, batch, record.optimizer_of(setting, model), plan)
        calls = {name: count // plan.steps for name, count in sdpa.calls.items()}
    return {"sdpa_kernels": calls, **counts, **summary(tracer, events)}


def _last_only(model: Any, count: int) -> Any:
    return lambda micro_batch: model.set_requires_gradient_sync(micro_batch == count - 1)
