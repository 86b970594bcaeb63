"""Estimate and trace the same steps and demand that they agree to the byte.

    python benchmarks/agreement.py [--points N] [--only TEXT] [--workers N] [--verbose]

Architectures × precision × attention × checkpointing × optimizer × accumulation × sizes × tied × lora × sharding: for
every tiny configuration among the reference records, settings drawn with a fixed seed, `--points` for each. Compared
are live bytes after every event of every phase, the ends and peaks of phases, kinds, lines, kernels' scratch and
parameters. What one of the two refuses is no point. The last line is ``N points, M bytes off``; exit 1 unless M is 0.

Left out, because the two do not agree yet: a ViT's or T5's single sequence (`single`), the routers' loss where the loss
is a sum of logits, FSDP2 beyond `SHARDED` and with clipping, and kinds where `Point.plain` is false.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from typing import Any

from agreement_compare import Point, differences, traced

from peakmem.errors import PeakmemError
from peakmem.trace.process import Worker

DATA = Path(__file__).resolve().parents[1] / "tests" / "data"
AXES: Mapping[str, tuple[Any, ...]] = {
    "precision": ("bf16", "fp16", "fp32", "amp-bf16", "amp-fp16", "mixed"),
    "attention": ("auto", "eager"),
    "checkpoint": ("none", "none", "full", "selective"),
    "optimizer": ("adamw", "adamw", "sgd", "momentum", "adafactor", "lion", "muon", "amsgrad", "rmsprop"),
    "optimizer_implementation": ("auto", "foreach", "fused", "loop"),
    "accumulation": (1, 1, 2, 3),
    "batch": (1, 2, 3),
    "sequence": (33, 40, 61, 64),
    "lora_rank": (0, 0, 0, 8),
    "loss": ("upcast", "upcast", "upcast", "sum"),
    "clip": (False, False, True),
    "set_to_none": (True, True, False),
    "step": ("steady", "steady", "first"),
    "dropout": (-1.0, -1.0, 0.0, 0.1),
    "shard": ("none", "none", "none", "none", "fsdp2"),
    "reshard": ("layers", "all", "none"),
}
ONE_AT_A_TIME = Lock()  # the engine writes on one tape
FUSED = ("adamw", "amsgrad", "sgd", "momentum")
FOREACH = (*FUSED, "adafactor", "rmsprop", "muon")


def configs() -> list[dict[str, Any]]:
    """Every tiny configuration of the reference records once, in a fixed order."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(DATA.glob("traced_*.json")):
        for record in json.loads(path.read_text(encoding="utf-8")):
            if "events" in record and record.get("config"):
                config = {k: v for k, v in record["config"].items() if k not in ("dtype", "torch_dtype")}
                if config["model_type"] not in FAMILIES:
                    continue
                if record["task"] == "mlm" and config["model_type"] == "bert":
                    config["architectures"] = ["BertForMaskedLM"]
                found.setdefault(json.dumps(config, sort_keys=True), config)
    return list(found.values())


FAMILIES = (
    "bert bloom cohere deepseek_v2 deepseek_v3 falcon gemma gemma2 gemma3_text gpt2 gpt_bigcode gpt_neox gpt_oss gptj "
    "llama llama4_text mistral mixtral mpt olmo2 opt phi phi3 qwen2 qwen3 qwen3_moe stablelm starcoder2 t5 vit"
).split()
"""Values of model_type in the grid."""
SHARDED = ("llama", "mistral", "qwen2", "qwen3", "olmo2", "stablelm", "starcoder2", "gpt2", "gpt_neox")
"""Families that are divided with FSDP2 in the grid."""


def settings(config: Mapping[str, Any], seed: str) -> dict[str, Any]:
    """Settings drawn with a seed, without what means nothing together."""
    draw = random.Random(seed)
    family = config["model_type"]
    made = {name: draw.choice(values) for name, values in AXES.items()}
    way = made["optimizer_implementation"]
    if (way == "fused" and made["optimizer"] not in FUSED) or (way == "foreach" and made["optimizer"] not in FOREACH):
        made["optimizer_implementation"] = "auto"
    if made["shard"] == "fsdp2" and family not in SHARDED:
        made["shard"] = "none"
    single = family in ("vit", "t5") and made["batch"] == 1
    if single:
        made["batch"] = 2
    if config.get("output_router_logits"):
        made["loss"] = "upcast"
    if made["precision"] == "mixed":
        made["clip"] = False  # no code of torch's clips by fp32 master weights
    if made["shard"] == "fsdp2":
        made |= {"gpus": draw.choice((8, 64)), "sync_each_batch": draw.choice((True, False)), "lora_rank": 0,
                 "precision": draw.choice(("mixed", "bf16", "fp32")), "optimizer": "adamw", "clip": False,
                 "set_to_none": True}
    else:
        del made["reshard"]
    return made


def points(each: int, only: str = "") -> Iterator[Point]:
    """The grid: `each` settings for every configuration."""
    for i, config in enumerate(configs()):
        for j in range(each):
            name = f"{config['model_type']}-{i}-{j}"
            if only in name:
                yield Point(name, config, settings(config, name))


def run(grid: list[Point], workers: int, verbose: bool = False) -> tuple[int, int, list[str]]:
    """Compare every point; return points compared, bytes off in all, and a line for each point that is off."""
    lines: list[str] = []
    done = off = 0

    def part(number: int) -> None:
        nonlocal done, off
        with Worker() as worker:
            for point in grid[number::workers]:
                try:
                    bytes_off, told = compared(worker, point)
                except PeakmemError as refusal:
                    if verbose:
                        print(f"refused  {point.name}: {refusal}", flush=True)
                    continue
                except Exception as failure:
                    bytes_off, told = 1, f"{type(failure).__name__}: {str(failure).splitlines()[0]}"
                done += 1
                off += bytes_off
                if told:
                    lines.append(f"off      {point.name} {point.given()}: {told}")
                    print(lines[-1], flush=True)
                elif verbose:
                    print(f"equal    {point.name}", flush=True)

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(part, range(workers)))
    return done, off, lines


def compared(worker: Worker, point: Point) -> tuple[int, str]:
    """Bytes off and what is off. Errors: PeakmemError where one side refuses."""
    with ONE_AT_A_TIME:
        setting = point.setting()
        point.estimate()
    found = worker.call(traced, setting, timeout=120)
    with ONE_AT_A_TIME:
        return differences(point, found)


def main() -> int:
    """Run the grid and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=5, help="settings for each configuration (default: 5)")
    parser.add_argument("--only", default="", help="only points whose name contains this text")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--verbose", action="store_true", help="a line for equal and refused points, too")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    grid = list(points(arguments.points, arguments.only))
    done, off, _ = run(grid, arguments.workers, arguments.verbose)
    print(f"{done} points, {off} bytes off")
    return int(off > 0 or not done)


if __name__ == "__main__":
    sys.exit(main())
