"""One traced step as a record: bytes by phase and kind, and for small models every event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from . import fake_gpu, hf, optimizers, step
from .kernels import GPU
from .patches import gpu_answers
from .summary import summary
from .tracer import Tracer

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


LOSSES = {"model": lambda output: output.loss, "sum": lambda output: output.logits.sum()}


def trace(setting: Mapping[str, Any], gpu: GPU | None = None, events: bool = False) -> dict[str, Any]:
    """Trace one setting and return its record.

    `setting`: a dictionary with ``config``, ``task``, ``dtype``, ``autocast``, ``attention``, ``checkpointing``,
    ``lora``, ``optimizer_impl``, ``accumulation``, ``batch`` and ``seq``; optionally ``optimizer`` (a name of
    `optimizers.OPTIMIZERS`), ``loss`` ("sum": the logits' sum, no labels), ``set_to_none``, ``clip``, ``step``
    ("first") and ``selective`` (names of operations whose outputs checkpointing keeps). All numbers are bytes.
    """
    fake = fake_gpu.set_up()
    dtype = DTYPES[setting["dtype"]]
    autocast = None if setting["autocast"] is None else DTYPES[setting["autocast"]]
    model = hf.build(
        setting["config"],
        setting["task"],
        dtype,
        setting["attention"],
        setting["lora"],
        setting["checkpointing"],
        setting.get("selective"),
    )
    loss = setting.get("loss", "model")
    with FakeTensorMode(allow_non_fake_inputs=True), gpu_answers(gpu or GPU()) as sdpa:
        hf.move(model, fake.device)
        inputs = hf.batch(
            model.config,
            setting["task"],
            dtype,
            setting["batch"],
            setting.get("seq"),
            fake.device,
            setting.get("target_seq"),
        )
        if loss == "sum":
            del inputs["labels"]
        optimizer = optimizers.make(model, setting.get("optimizer", "AdamW"), setting["optimizer_impl"])
        tracer = Tracer(fake.device, sdpa)
        plan = step.Step(
            accumulation=setting["accumulation"],
            autocast=autocast,
            loss=LOSSES[loss],
            clip=setting.get("clip"),
            set_to_none=setting.get("set_to_none", True),
            steps=1 if setting.get("step") == "first" else 2,
        )
        step.run(tracer, model, inputs, optimizer, plan)
        calls = {name: count // plan.steps for name, count in sdpa.calls.items()}
    parameters = list(dict.fromkeys(model.parameters()))
    return {
        "sdpa_kernels": calls,
        "n_params": sum(p.numel() for p in parameters),
        "n_trained": sum(p.numel() for p in parameters if p.requires_grad),
        **summary(tracer, events),
    }
