"""One traced step as a record: bytes by phase and kind, and for small models every event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from typing import Any

import torch

from peakmem.tables.kernels import GPU

from . import fake_gpu, hf, optimizers, pictures, step
from .bits import elements, without_values
from .patches import gpu_answers
from .summary import summary
from .tracer import Tracer

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


LOSSES = {"model": lambda output: output.loss, "sum": lambda output: output.logits.sum()}


def model_of(setting: Mapping[str, Any]) -> torch.nn.Module:
    """Return the setting's model on the meta device."""
    model = hf.build(
        setting["config"],
        setting["task"],
        DTYPES[setting["dtype"]],
        setting["attention"],
        setting.get("lora"),
        setting.get("checkpointing", False),
        setting.get("selective"),
        setting.get("dropout"),
        setting.get("stored"),
    )
    hold(model, setting.get("freeze", ()), setting.get("frozen_layers", 0))
    if frozen := setting.get("frozen_dtype"):
        for parameter in model.parameters():
            if not parameter.requires_grad:
                parameter.data = parameter.data.to(DTYPES[frozen])
    return model


def hold(model: torch.nn.Module, patterns: Sequence[str], layers: int) -> None:
    """Leave untrained what the patterns name, anywhere in a parameter's name, and the first `layers` layers."""
    for name, parameter in model.named_parameters():
        if any(fnmatch(name, f"*{pattern}*") for pattern in patterns):
            parameter.requires_grad_(False)
    for layer in hf.all_layers_of(model)[:layers] if layers else ():
        layer.requires_grad_(False)


def batch_of(setting: Mapping[str, Any], model: torch.nn.Module, device: str) -> dict[str, torch.Tensor]:
    """Return the setting's batch, without labels if the loss is the sum of the logits."""
    batch = hf.batch(
        model.config,
        setting["task"],
        DTYPES[setting["dtype"]],
        setting["batch"],
        setting.get("seq"),
        device,
        setting.get("target_seq"),
        setting.get("grid") or (),
    )
    if setting.get("loss") == "sum":
        del batch["labels"]
    return batch


def optimizer_of(setting: Mapping[str, Any], model: torch.nn.Module) -> Any:
    """Return the setting's optimizer over the model's trained parameters."""
    if setting.get("master"):
        return optimizers.over_master(model, setting.get("optimizer", "AdamW"))
    return optimizers.make(model, setting.get("optimizer", "AdamW"), setting["optimizer_impl"])


def _has_bits(setting: Mapping[str, Any]) -> bool:
    return bool(setting.get("stored")) or setting.get("optimizer", "").endswith("8bit")


def kept_operations(setting: Mapping[str, Any]) -> frozenset[str]:
    """Return the operations whose results selective checkpointing keeps, as the tracer writes them."""
    return frozenset(name.removesuffix(".default").replace(".", "::", 1) for name in setting.get("selective") or ())


def step_of(setting: Mapping[str, Any]) -> step.Step:
    """Return how the setting's step is made."""
    autocast = setting.get("autocast")
    return step.Step(
        accumulation=setting.get("accumulation", 1),
        autocast=None if autocast is None else DTYPES[autocast],
        loss=LOSSES[setting.get("loss", "model")],
        clip=setting.get("clip"),
        set_to_none=setting.get("set_to_none", True),
        keep_output=setting.get("keep_output", False),
        steps=1 if setting.get("step") == "first" else 2,
    )


def trace(setting: Mapping[str, Any], gpu: GPU | None = None, events: bool = False) -> dict[str, Any]:
    """Trace one setting and return its record.

    `setting`: a dictionary with ``config``, ``task``, ``dtype``, ``autocast``, ``attention``, ``checkpointing``,
    ``lora``, ``optimizer_impl``, ``accumulation``, ``batch`` and ``seq``. Optional: ``optimizer`` (a name of
    `optimizers.OPTIMIZERS`), ``loss`` ("sum": the logits' sum, no labels), ``set_to_none``, ``clip``, ``step``
    ("first"), ``keep_output`` (alive through the backward), ``target_seq``, ``selective`` (operations whose outputs
    checkpointing keeps), ``kernel`` (the one attention kernel), ``master`` (fp32 master weights), ``dropout``,
    ``freeze`` (patterns), ``frozen_layers``, ``frozen_dtype`` (where it is not ``dtype``), ``grid`` (see `hf.batch`)
    and ``stored`` (see `hf.build`). All numbers are bytes.
    """
    tracer, model, calls = traced(setting, gpu)
    counts = parameter_counts(model)
    return {"sdpa_kernels": calls, "n_params": counts[0], "n_trained": counts[1], **summary(tracer, events)}


def parameter_counts(model: torch.nn.Module) -> tuple[int, int]:
    """Return the number of unique parameters, and of those that are trained."""
    parameters = list(dict.fromkeys(model.parameters()))
    return sum(map(elements, parameters)), sum(p.numel() for p in parameters if p.requires_grad)


def traced(setting: Mapping[str, Any], gpu: GPU | None = None) -> tuple[Tracer, torch.nn.Module, dict[str, int]]:
    """Trace one setting; return the tracer, the model and the attention kernels' calls in one step."""
    fake = fake_gpu.set_up()
    model = model_of(setting)
    plan = step_of(setting)
    answers = gpu_answers(gpu or GPU(), setting.get("kernel", ""))
    values = without_values(_has_bits(setting))
    with fake_gpu.fake_mode(), answers as sdpa, values, pictures.answered(fake.device):
        hf.move(model, fake.device)
        batch = batch_of(setting, model, fake.device)
        tracer = Tracer(fake.device, sdpa)
        if fake.lost:
            tracer.notes.append(f"{fake.way}: {fake.lost}")
        tracer.keeps = kept_operations(setting)
        step.run(tracer, model, batch, optimizer_of(setting, model), plan)
    return tracer, model, {name: count // plan.steps for name, count in sdpa.calls.items()}
