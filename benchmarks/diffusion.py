"""Trace steps of tiny diffusion models of diffusers, and compare the engine with them, allocation by allocation.

    python benchmarks/diffusion.py [--only WORD] [--write FILE]

The step: noise is predicted, `F.mse_loss(prediction.float(), noise.float())`, AdamW. Exit 1 when any is off. Needs
diffusers.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from itertools import product
from pathlib import Path
from typing import Any

import diffusers
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

sys.path.insert(0, str(Path(__file__).parents[1]))

from recorded import recorded

from peakmem.tables.kernels import GPU
from peakmem.trace import fake_gpu, hf, step
from peakmem.trace.patches import gpu_answers
from peakmem.trace.record import DTYPES
from peakmem.trace.tracer import Tracer
from tests.diffusion import CONFIGS, compared, grouped

PRECISIONS = {"bf16": ("bf16", None), "fp32": ("fp32", None), "amp-bf16": ("fp32", "bf16")}
PHASE = {"zero": "clear"}


def settings() -> Iterator[dict[str, Any]]:
    """Every model in every precision, plain, checkpointed and without gradients; batches in turn."""
    turns = product(CONFIGS, PRECISIONS, ("training", "checkpointing", "inference"))
    for i, (name, precision, run) in enumerate(turns):
        yield {"id": f"{name}/{precision}/{run}", "config": name, "precision": precision, "run": run,
               "batch": 1 + i % 2, "sequence": 7}


def parameters_of(config: Mapping[str, Any]) -> list[list[Any]]:
    """Names and shapes, in order of definition."""
    with torch.device("meta"):
        known = {name: value for name, value in config.items() if not name.startswith("_")}
        model = getattr(diffusers, config["_class_name"])(**known)
    return [[name, list(p.shape)] for name, p in model.named_parameters()]


def inputs_of(config: Mapping[str, Any], setting: Mapping[str, Any], dtype: torch.dtype,
              device: str) -> dict[str, torch.Tensor]:
    """What the model's forward is called with."""
    b, side = setting["batch"], config["sample_size"]
    sample = torch.empty(b, config["in_channels"], side, side, dtype=dtype, device=device)
    timestep = torch.empty(b, dtype=torch.int64, device=device)
    if config["_class_name"] == "DiTTransformer2DModel":
        return {"hidden_states": sample, "timestep": timestep,
                "class_labels": torch.empty(b, dtype=torch.int64, device=device)}
    words = torch.empty(b, setting["sequence"], config["cross_attention_dim"], dtype=dtype, device=device)
    found = {"sample": sample, "timestep": timestep, "encoder_hidden_states": words}
    if config.get("addition_embed_type") == "text_time":
        ids, each = 6, config["addition_time_embed_dim"]
        pooled = config["projection_class_embeddings_input_dim"] - ids * each
        found["text_embeds"] = torch.empty(b, pooled, dtype=dtype, device=device)
        found["time_ids"] = torch.empty(b, ids, dtype=dtype, device=device)
    return found


class Step(torch.nn.Module):
    """The model, called as diffusers' training scripts call it, and its loss."""

    def __init__(self, model: torch.nn.Module, trains: bool) -> None:
        super().__init__()
        self.model, self.trains = model, trains

    def forward(self, noise: torch.Tensor, **inputs: torch.Tensor) -> torch.Tensor:
        names = ("text_embeds", "time_ids")
        added = {"added_cond_kwargs": {name: inputs.pop(name) for name in names}} if names[0] in inputs else {}
        prediction = self.model(**inputs, **added).sample
        if not self.trains:
            return prediction
        return torch.nn.functional.mse_loss(prediction.float(), noise.float())


def traced(setting: Mapping[str, Any]) -> dict[str, list[int]]:
    """Allocations by phase, and frees between them as one sum, of the second step."""
    device = fake_gpu.set_up(fallback=False).device
    dtype, autocast = PRECISIONS[setting["precision"]]
    config = CONFIGS[setting["config"]]
    trains = setting["run"] != "inference"
    with torch.device("meta"):
        named = getattr(diffusers, config["_class_name"])
        known = {name: value for name, value in config.items() if not name.startswith("_")}
        inner = named(**known).to(DTYPES[dtype]).train(trains)
        if setting["run"] == "checkpointing":
            inner.enable_gradient_checkpointing()
        model = Step(inner, trains)
    with FakeTensorMode(allow_non_fake_inputs=True), gpu_answers(GPU()) as sdpa:
        hf.move(model, device)
        inputs = inputs_of(config, setting, DTYPES[dtype], device)
        channels = config.get("out_channels") or config["in_channels"]
        shape = (setting["batch"], channels, config["sample_size"], config["sample_size"])
        if trains:
            inputs["noise"] = torch.empty(shape, dtype=DTYPES[dtype], device=device)
        tracer = Tracer(device, sdpa)
        if trains:
            optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
            plan = step.Step(autocast=DTYPES[autocast] if autocast else None, loss=lambda output: output)
            step.run(tracer, model, inputs, optimizer, plan)
        else:
            for name, tensor in [*model.named_parameters(), *model.named_buffers(), *inputs.items()]:
                tracer.track(tensor, "parameter", "", name)
            context = torch.autocast("cuda", dtype=DTYPES[autocast]) if autocast else nullcontext()
            with tracer, tracer.watching(model), torch.no_grad(), context:
                tracer.enter("prefill")
                model(noise=None, **inputs)
            with tracer:
                tracer.close()
    return events_of(tracer)


def events_of(tracer: Tracer) -> dict[str, list[int]]:
    ends = [i for i, (name, _, _) in enumerate(tracer.phases) if name == "zero"]
    first = ends[-2] + 1 if len(ends) > 1 else 0
    found = {}
    for (name, _, begin), (_, _, end) in zip(tracer.phases[first:], tracer.phases[first + 1:], strict=False):
        found[PHASE.get(name, name)] = grouped([change for _, change in tracer.events[begin:end]])
    return found


def record_of(setting: dict[str, Any]) -> dict[str, Any]:
    """Events; and once for each model, its parameters."""
    once = setting["precision"] == "bf16" and setting["run"] == "training"
    return {"events": traced(setting)} | (
        {"parameters": parameters_of(CONFIGS[setting["config"]])} if once else {})


def main() -> int:
    """Trace and compare every run."""
    return recorded("Compare the engine with traced steps of tiny diffusion models.", settings(), record_of, compared)


if __name__ == "__main__":
    sys.exit(main())
