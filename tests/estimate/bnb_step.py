"""A step of a transformers model on bitsandbytes weights with peft's adapters, on the fake GPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from peakmem.setup import Setup
from peakmem.tables.kernels import GPU
from peakmem.trace import fake_gpu, hf, optimizers, step
from peakmem.trace.patches import gpu_answers
from peakmem.trace.tracer import Tracer
from tests.reference_steps import grouped

DTYPES = {"bf16": (torch.bfloat16, None), "amp-bf16": (torch.bfloat16, torch.bfloat16)}


def quantised(model: torch.nn.Module, scheme: str) -> torch.nn.Module:
    """Linear layers but the head replaced, as transformers' integrations/bitsandbytes.py does it; on meta."""
    import bitsandbytes as bnb

    with torch.device("meta"):
        for module in list(model.modules()):
            for name, child in list(module.named_children()):
                if type(child) is not torch.nn.Linear or name == "lm_head":
                    continue
                made = bnb.nn.Linear4bit(child.in_features, child.out_features, child.bias is not None,
                                         compute_dtype=torch.bfloat16, compress_statistics=scheme.endswith("double"),
                                         quant_type=scheme[:3])
                made.requires_grad_(False)
                setattr(module, name, made)
    model.is_loaded_in_4bit = True  # type: ignore[assignment]
    model.hf_quantizer = None  # type: ignore[assignment]
    return model


def packed(model: torch.nn.Module, device: str) -> None:
    """Give every 4-bit layer packed bytes and the state that a real one has."""
    import bitsandbytes as bnb
    from bitsandbytes.functional import QuantState

    def empty(size: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.empty(size, dtype=dtype, device=device)

    for module in model.modules():
        if not isinstance(module, bnb.nn.Linear4bit):
            continue
        shape = torch.Size((module.out_features, module.in_features))
        count = shape.numel()
        double = module.weight.compress_statistics
        blocks = -(-count // 64)
        second = QuantState(absmax=empty(-(-blocks // 256), torch.float32), code=empty(256, torch.float32),
                            blocksize=256, dtype=torch.float32) if double else None
        state = QuantState(absmax=empty(blocks, torch.uint8 if double else torch.float32), shape=shape,
                           dtype=torch.bfloat16, blocksize=64, code=empty(16, torch.float32),
                           quant_type=module.weight.quant_type, state2=second,
                           offset=torch.empty((), device=device) if double else None)
        weight: Any = torch.nn.Parameter(torch.empty(((count + 1) // 2, 1), dtype=torch.uint8, device=device),
                                         requires_grad=False)
        weight.quant_state, module.compute_type_is_set = state, True
        module.weight = weight


def traced(config: Mapping[str, Any], setup: Setup) -> dict[str, list[int]]:
    """Allocations and frees by phase, of the second step."""
    import peft

    device = fake_gpu.set_up(fallback=False).device
    dtype, autocast = DTYPES[setup.precision]
    model: Any = quantised(hf.build(dict(config), "causal", dtype, "sdpa"), setup.weights)
    if setup.kbit_prepare:
        for parameter in model.parameters():
            parameter.requires_grad = False
            if parameter.dtype == torch.bfloat16 and type(parameter).__name__ != "Params4bit":
                parameter.data = parameter.data.to(torch.float32)
    with torch.device("meta"):
        model = peft.get_peft_model(model, peft.LoraConfig(r=setup.lora_rank, target_modules="all-linear",
                                                           task_type="CAUSAL_LM"))
    if setup.checkpoint == "full":
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.train()
    with FakeTensorMode(allow_non_fake_inputs=True), gpu_answers(None if device == "cpu" else GPU()) as sdpa:
        bases = [m for m in model.modules() if type(m).__name__ == "Linear4bit" and hasattr(m, "compute_dtype")]
        saved = [m.weight for m in bases]
        for m in bases:
            m._parameters["weight"] = None
        hf.move(model, device)
        for m, weight in zip(bases, saved, strict=True):
            m._parameters["weight"] = weight
        packed(model, device)
        batch = hf.batch(model.config, "causal", dtype, setup.batch, setup.sequence, device)
        optimizer = optimizers.make(model, "AdamW", "foreach")
        tracer = Tracer(device, sdpa)
        step.run(tracer, model, batch, optimizer, step.Step(accumulation=1, autocast=autocast))
    events: dict[str, list[int]] = {}
    last = max(i for i, (name, _, _) in enumerate(tracer.phases) if name == "zero")
    first = max(i for i, (name, _, _) in enumerate(tracer.phases) if name == "zero" and i < last) + 1
    for (name, _, start), (_, _, end) in zip(tracer.phases[first:], tracer.phases[first + 1 :], strict=False):
        events[{"zero": "clear"}.get(name, name)] = grouped([change for _, change in tracer.events[start:end]])
    return events
