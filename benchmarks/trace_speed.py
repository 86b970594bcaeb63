"""Time one warm traced step beside the same step under a bare FakeTensorMode and under torch's MemTracker.

    python benchmarks/trace_speed.py CONFIG.json [--sequence N] [--layers N]

One model, one process, b1, bf16, AdamW foreach; every figure is the second of two steps, in seconds of processor time,
so that a busy machine does not change it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch


def main() -> None:
    """Print the three times and the two ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("--sequence", type=int, default=8192)
    parser.add_argument("--layers", type=int, help="fewer layers than the configuration's")
    arguments = parser.parse_args()

    warnings.simplefilter("ignore")
    import torch
    from torch._subclasses.fake_impls import op_implementations_dict
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    from peakmem.tables.kernels import GPU
    from peakmem.trace import fake_gpu, hf, record
    from peakmem.trace.patches import gpu_answers
    from peakmem.trace.step import run
    from peakmem.trace.summary import summary
    from peakmem.trace.tracer import Tracer

    config = json.loads(arguments.config.read_text())
    if arguments.layers:
        config["num_hidden_layers"] = arguments.layers
    setting = {
        "config": config,
        "task": "causal",
        "dtype": "bf16",
        "attention": "sdpa",
        "optimizer_impl": "foreach",
        "batch": 1,
        "seq": arguments.sequence,
    }
    fake_gpu.set_up(fallback=False)

    def plain_step(
        model: Any, batch: Any, optimizer: Any, around: Callable[[], Any], after: Callable[[], Any]
    ) -> float:
        times = []
        for _ in range(2):
            start = time.process_time()
            with around():
                model(**batch).loss.backward()
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)
            times.append(time.process_time() - start)
            after()
        return times[-1]

    def in_fake_mode(work: Callable[[Any, Any, Any, Any], float]) -> float:
        model = record.model_of(setting)
        with FakeTensorMode(allow_non_fake_inputs=True), gpu_answers(GPU()) as sdpa:
            hf.move(model, "cuda")
            batch = record.batch_of(setting, model, "cuda")
            return work(model, batch, record.optimizer_of(setting, model), sdpa)

    def answer(mode: Any, func: Any, tensor: Any) -> object:
        # Bare fake tensors refuse to tell their contents, which transformers' mask code asks for.
        known = tensor.constant
        return known.item() if known is not None else True if tensor.dtype == torch.bool else 1

    def bare(model: Any, batch: Any, optimizer: Any, sdpa: Any) -> float:
        with patch.dict(op_implementations_dict, {torch.ops.aten._local_scalar_dense.default: answer}):
            return plain_step(model, batch, optimizer, nullcontext, int)

    def ours(model: Any, batch: Any, optimizer: Any, sdpa: Any) -> float:
        times: list[float] = []
        tracer = Tracer("cuda", sdpa)
        plan = record.step_of(setting)
        start = time.process_time()
        run(tracer, model, batch, optimizer, plan, lambda: times.append(time.process_time() - start))
        peak = summary(tracer)["bytes"]["peak"]
        print(f"traced: {len(tracer.events)} events in two steps, peak {peak / 2**30:.3f} GiB")
        return times[-1] - times[-2]

    def memory_tracker(model: Any, batch: Any, optimizer: Any, sdpa: Any) -> float:
        tracker = MemTracker()
        tracker.track_external(model, optimizer, *batch.values())
        with patch.dict(op_implementations_dict, {torch.ops.aten._local_scalar_dense.default: answer}):
            return plain_step(model, batch, optimizer, lambda: tracker, tracker.reset_mod_stats)

    in_fake_mode(bare)  # imports, operator tables and the fake tensors' cache
    seconds = {
        name: in_fake_mode(work) for name, work in (("bare", bare), ("traced", ours), ("MemTracker", memory_tracker))
    }
    for name, value in seconds.items():
        print(f"{name:>10}  {value:6.2f} s a step")
    print(f"traced / bare        {seconds['traced'] / seconds['bare']:5.2f}")
    print(f"MemTracker / traced  {seconds['MemTracker'] / seconds['traced']:5.2f}")


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)
