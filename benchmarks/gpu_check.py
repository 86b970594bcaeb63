"""Ten real steps on a GPU beside their traces: allocated and reserved bytes, measured and traced.

    python benchmarks/gpu_check.py [--gpu NAME] [--steps N]

Small models in several settings, under five minutes in all. Each run is a process of its own, on a GPU that nothing
else uses. Without a GPU the column of the measurement says ``not measured``. The exit code is 1 if an allocated peak is
off by more than 5 %, or a reserved one by more than 10 %.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from peakmem.readers.hf_config import from_config
from peakmem.setup import Setup
from peakmem.trace.models import as_json
from peakmem.trace.process import Worker
from peakmem.trace.settings import setting_of

LLAMA = {"model_type": "llama", "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 8,
         "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 32000, "max_position_embeddings": 4096}
GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257, "n_positions": 1024}
BERT = {"model_type": "bert", "architectures": ["BertForMaskedLM"], "hidden_size": 768, "intermediate_size": 3072,
        "num_hidden_layers": 12, "num_attention_heads": 12, "vocab_size": 30522}
RUNS: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "llama bf16": (LLAMA, {"precision": "bf16", "batch": 4, "sequence": 2048}),
    "llama bf16 eager": (LLAMA, {"precision": "bf16", "batch": 1, "sequence": 1024, "attention": "eager"}),
    "llama bf16 checkpointed": (LLAMA, {"precision": "bf16", "batch": 4, "sequence": 2048, "checkpoint": "full"}),
    "llama fused AdamW": (LLAMA, {"precision": "bf16", "batch": 4, "sequence": 1024,
                                  "optimizer_implementation": "fused"}),
    "llama LoRA": (LLAMA, {"precision": "bf16", "batch": 4, "sequence": 2048, "lora_rank": 16}),
    "gpt2 amp": (GPT2, {"precision": "amp-bf16", "batch": 8, "sequence": 1024}),
    "gpt2 fp32, 2 micro-batches": (GPT2, {"precision": "fp32", "batch": 4, "sequence": 512, "accumulation": 2}),
    "bert amp": (BERT, {"precision": "amp-bf16", "batch": 16, "sequence": 512}),
}


def measured(setting: Mapping[str, Any], steps: int) -> dict[str, int] | None:
    """In a worker: peaks of real steps, None without a GPU."""
    import torch

    from peakmem.trace import record

    if not torch.cuda.is_available():
        return None
    model = record.model_of(setting).to_empty(device="cuda")
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    for buffer in model.buffers():
        buffer.zero_()
    plan, batch = record.step_of(setting), record.batch_of(setting, model, "cuda")
    for tensor in batch.values():
        tensor.zero_()
    optimizer = record.optimizer_of(setting, model)
    torch.cuda.reset_peak_memory_stats()
    for _ in range(steps):
        for _ in range(plan.accumulation):
            with torch.autocast("cuda", plan.autocast, enabled=plan.autocast is not None):
                loss = plan.loss(model(**batch)) / plan.accumulation
            loss.backward()
            del loss
        optimizer.step()
        optimizer.zero_grad(set_to_none=plan.set_to_none)
    torch.cuda.synchronize()
    return {"allocated": torch.cuda.max_memory_allocated(), "reserved": torch.cuda.max_memory_reserved(),
            "free": torch.cuda.mem_get_info()[0]}


def device() -> str:
    """In a worker: the GPU's name, empty without one."""
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else ""


def in_worker(function: Any, *args: Any) -> Any:
    """The result from a fresh process, so that no run sees the memory of another."""
    with Worker() as worker:
        return worker.call(function, *args, timeout=120)


def told(traced: int, real: int | None) -> str:
    """Both in MiB, and the difference."""
    mib = f"{traced / 2**20:>10,.1f}"
    return f"{mib} {'not measured':>14} {'':>8}" if real is None else (
        f"{mib} {real / 2**20:>14,.1f} {100 * (traced - real) / real:>+7.2f}%")


def main() -> int:
    """Print the table and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", default="", help="the GPU to trace for, where its own name is in no table")
    parser.add_argument("--steps", type=int, default=10)
    arguments = parser.parse_args()
    gpu = arguments.gpu or in_worker(device)
    print(f"GPU: {gpu or 'none, traced for an sm_80'}; MiB")
    print(f"{'run':<28}{'allocated':>10} {'measured':>14} {'':>8}  {'reserved':>10} {'measured':>14}")
    bad = False
    for name, (config, given) in RUNS.items():
        setup = Setup.of(**given, gpu=gpu)
        setting = setting_of(config, from_config(dict(config)), setup)
        totals = in_worker(as_json, setting, setup.as_json(), ())["totals"]
        real = in_worker(measured, setting, arguments.steps) or {}
        line = [told(totals[which], real.get(which)) for which in ("allocated", "reserved")]
        print(f"{name:<28}{line[0]}  {line[1]}".rstrip(), flush=True)
        for which, most in (("allocated", 0.05), ("reserved", 0.10)):
            bad = bad or bool(real) and abs(totals[which] - real[which]) > most * real[which]
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
