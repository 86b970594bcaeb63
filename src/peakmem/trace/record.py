"""One traced step as a record: bytes by phase and kind, and for small models every event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from . import fake_gpu, hf, step
from .kernels import GPU
from .patches import gpu_answers
from .summary import summary
from .tracer import Tracer

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def optimizer_for(model: torch.nn.Module, implementation: str) -> torch.optim.Optimizer:
    """Return AdamW over the trained parameters, in one of torch's three implementations."""
    trained = [p for p in model.parameters() if p.requires_grad]
    options = {"foreach": {"foreach": True}, "fused": {"fused": True}, "loop": {"foreach": False}}[implementation]
    return torch.optim.AdamW(trained, **options)


def trace(setting: Mapping[str, Any], gpu: GPU | None = None, events: bool = False) -> dict[str, Any]:
    """Trace one setting and return its record.

    `setting`: a dictionary with ``config``, ``task``, ``dtype``, ``autocast``, ``attention``, ``checkpointing``,
    ``lora``, ``optimizer_impl``, ``accumulation``, ``batch`` and ``seq``. All numbers of the record are bytes.
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
    )
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
        optimizer = optimizer_for(model, setting["optimizer_impl"])
        tracer = Tracer(fake.device, sdpa)
        plan = step.Step(accumulation=setting["accumulation"], autocast=autocast)
        step.run(tracer, model, inputs, optimizer, plan)
        calls = {name: count // plan.steps for name, count in sdpa.calls.items()}
    parameters = list(dict.fromkeys(model.parameters()))
    return {
        "sdpa_kernels": calls,
        "n_params": sum(p.numel() for p in parameters),
        "n_trained": sum(p.numel() for p in parameters if p.requires_grad),
        **summary(tracer, events),
    }
