"""Reference records of real training steps: to the engine's terms, and what differs.

A record is one element of a list as in tests/data/traced_steps.json: a model, how it was trained, live bytes by phase
and, for small models, every allocation. Everything here only translates and compares.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from peakmem.errors import PeakmemError
from peakmem.estimate import program_of
from peakmem.estimate.interpret import interpret
from peakmem.estimate.replay import Level, replay, size
from peakmem.estimate.settings import structure_of
from peakmem.estimate.tape import Phase
from peakmem.model import Model
from peakmem.readers.hf_config import from_config
from peakmem.setup import Setup

PRECISION = {("bf16", None): "bf16", ("fp16", None): "fp16", ("fp32", None): "fp32", ("fp32", "bf16"): "amp-bf16",
             ("fp32", "fp16"): "amp-fp16"}
OPTIMIZER = {"adamw": "adamw", "adam": "adam", "sgd": "sgd", "sgd-momentum": "momentum", "sgd-nesterov": "nesterov",
             "adam-amsgrad": "amsgrad", "adamw-amsgrad": "amsgrad"}
PHASE = {"zero": "clear", "clip": "optimizer.clip"}
KEPT = {"aten.mm.default": "mm", "aten.addmm.default": "addmm", "aten.bmm.default": "bmm",
        "aten._scaled_dot_product_flash_attention.default": "flash",
        "aten._scaled_dot_product_efficient_attention.default": "efficient"}
TASKS = {"causal": None, "mlm": "BertForMaskedLM", "image": None, "seq2seq": None, "image-text": None,
         "contrastive": None}
LEVELS = ("step_start", "after_forward", "forward_peak", "after_backward", "backward_peak", "optimizer_peak",
          "step_end", "peak")
LORA = {"r", "alpha", "targets", "layers"}


class NotExpressed(Exception):
    """The record asks for something that the settings have no word for."""


@dataclass(frozen=True)
class Difference:
    """Bytes off by phase (ours minus the record's), and the phases whose events differ, each with the first place."""

    bytes: Mapping[str, int]
    events: Mapping[str, str]

    def __bool__(self) -> bool:
        return bool(self.bytes or self.events)


def config_of(record: Mapping[str, Any], configs: Path) -> dict[str, Any]:
    """The model's configuration: in the record, or a file beside it with some keys replaced."""
    if record.get("config"):
        config = dict(record["config"])
    else:
        path = configs / Path(str(record["config_file"])).name
        if not path.is_file():
            raise NotExpressed(f"{path.name} is not in {configs}")
        config = json.loads(path.read_text(encoding="utf-8")) | (record.get("config_changes") or {})
    for ignored in ("dtype", "torch_dtype", "quantization_config", "auto_map"):
        config.pop(ignored, None)
    task = record.get("task", "causal")
    if task not in TASKS:
        raise NotExpressed(f"task {task}")
    if TASKS[task]:
        config["architectures"] = [TASKS[task]]
    return config


def setup_of(record: Mapping[str, Any]) -> Setup:
    """How it was trained, as settings."""
    pair = record["dtype"], record.get("autocast")
    if pair not in PRECISION:
        raise NotExpressed(f"dtype {pair[0]} under autocast {pair[1]}")
    lora = record.get("lora") or {}
    if set(lora) - LORA:
        raise NotExpressed(f"LoRA with {', '.join(sorted(set(lora) - LORA))}")
    optimizer = str(record.get("optimizer", "AdamW")).lower()
    settings: dict[str, Any] = {
        "precision": PRECISION[pair],
        "attention": {"sdpa": "auto"}.get(record["attention"], record["attention"]),
        "checkpoint": "full" if record.get("checkpointing") else "none",
        "lora_rank": lora.get("r", 0),
        "optimizer": OPTIMIZER.get(optimizer, optimizer),
        "optimizer_implementation": record.get("optimizer_impl", "foreach"),
        "accumulation": record.get("accumulation", 1),
        "batch": record["batch"],
        "loss": record.get("loss", "upcast"),
        "step": record.get("step", "steady"),
        "set_to_none": record.get("set_to_none", True),
        "clip": bool(record.get("clip")),
        "freeze": ",".join(record.get("freeze", ())),
        "frozen_layers": record.get("frozen_layers", min(lora.get("layers", (0,)))),
    }
    if "targets" in lora:
        settings["lora_targets"] = tuple(lora["targets"] or ("default",))
    if record.get("seq"):
        settings["sequence"] = record["seq"]
    if record.get("target_seq"):
        settings["target"] = record["target_seq"]
    if record.get("task") == "causal":
        settings["images"] = 0
    settings |= record.get("pictures") or {}
    return Setup.of(**settings | sharding_of(record))


def sharding_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """How parameters are divided. A policy that computes in 16 bit over fp32 shards is `mixed`."""
    if not record.get("shard"):
        return {}
    if record["shard"] != "fsdp2" or record.get("code", "transformers") != "transformers":
        raise NotExpressed(f"shard {record['shard']} of {record.get('code')} code")
    settings: dict[str, Any] = {
        "shard": "fsdp2", "gpus": record["gpus"], "offload": record.get("offload", "none"),
        "reshard": {True: "layers", False: "none"}.get(record["reshard_after_forward"], "all"),
        "sync_each_batch": record["sync"] == "every",
    }
    if record["compute"]:
        settings |= {"precision": "mixed",
                     "reduce_dtype": "auto" if record["reduce"] == "fp32" else record["compute"]}
    return settings


def case_of(record: Mapping[str, Any], configs: Path) -> tuple[Model, Setup, tuple[str, ...]]:
    """Model, settings, and the operations whose results selective checkpointing keeps."""
    try:
        model = from_config(config_of(record, configs))
        setup = setup_of(record)
        structure_of(model, setup)
    except PeakmemError as error:
        raise NotExpressed(str(error)) from None
    return model, setup, tuple(KEPT[name] for name in record.get("selective") or ())


def compare(record: Mapping[str, Any], configs: Path) -> Difference:
    """What the engine says otherwise than the record. Errors: NotExpressed."""
    model, setup, kept = case_of(record, configs)
    structure, numbers = structure_of(model, setup)
    levels = replay(program_of(replace(structure, checkpoint_save=kept)), numbers)
    off = dict(level_differences(record, levels))
    events: dict[str, str] = {}
    if "events" in record:
        unfolded, numbers = structure_of(model, setup, unfold=True)
        tape = interpret(replace(unfolded, checkpoint_save=kept))
        events = dict(event_differences(record, events_of(tape, numbers)))
    return Difference(off, events)


def level_differences(record: Mapping[str, Any], levels: Mapping[str, Level]) -> Iterator[tuple[str, int]]:
    """Totals of the step, and those of each micro-batch."""
    forward = [level for name, level in levels.items() if name.startswith("forward")]
    backward = [level for name, level in levels.items() if name.startswith("backward")]
    ours = dict(zip(LEVELS, (
        levels["start"].end, forward[-1].end, max(level.peak for level in forward), backward[-1].end,
        max(level.peak for level in backward), levels["optimizer"].peak, levels["clear"].end,
        max(level.peak for level in levels.values())), strict=True))
    if "clip_peak" in record["bytes"]:
        ours["clip_peak"] = levels["optimizer.clip"].peak
    for name, value in ours.items():
        if value != record["bytes"][name]:
            yield name, value - record["bytes"][name]
    for j, batch in enumerate(record.get("micro_batches") or ()):
        at = interpreted(record, j, len(forward))
        before, after = forward[at], backward[at]
        found = {"after_forward": before.end, "forward_peak": before.peak, "after_backward": after.end,
                 "backward_peak": after.peak}
        for name, value in found.items():
            if name in batch and batch[name] != value:
                yield f"micro_batch_{j}/{name}", value - batch[name]


def interpreted(record: Mapping[str, Any], micro_batch: int, count: int) -> int:
    """Which of the micro-batches that are interpreted stands for this one: the last for the last, the second for all
    between."""
    return count - 1 if micro_batch == record["accumulation"] - 1 else min(micro_batch, 1)


def events_of(tape: Any, numbers: Mapping[str, Any]) -> dict[str, list[int]]:
    """Every allocation (+) and free (−) by phase, unrounded."""
    found: dict[str, list[int]] = {}
    events: list[int] = []
    for event in tape.events:
        if isinstance(event, Phase):
            events = found.setdefault(event.name, [])
        elif isinstance(event, int):
            index = event if event >= 0 else ~event
            record = tape.records[index]
            bytes_ = 0 if record.scratch else int(size(record.key, numbers))
            if bytes_:
                events.append(bytes_ if event >= 0 else -bytes_)
    return found


def event_differences(record: Mapping[str, Any], ours: Mapping[str, list[int]]) -> Iterator[tuple[str, str]]:
    """Live bytes after every event; frees between two allocations have no order."""
    several = record.get("accumulation", 1) > 1
    for part in record["events"]:
        phase = PHASE.get(part["phase"], part["phase"])
        if several and phase in ("forward", "backward"):
            count = sum(name.startswith(phase) for name in ours)
            phase = f"{phase}.{interpreted(record, part['micro_batch'], count)}"
        mine, theirs = steps(ours.get(phase, [])), steps(part["bytes"])
        if mine != theirs:
            at = next((i for i, (x, y) in enumerate(zip(mine, theirs, strict=False)) if x != y),
                      min(len(mine), len(theirs)))
            yield phase, f"event {at}: {mine[at:at + 3]} for {theirs[at:at + 3]}"


def steps(events: list[int]) -> list[int]:
    """Each allocation, and the sum of the frees between two of them."""
    result: list[int] = []
    freed = 0
    for change in events:
        if change > 0:
            if freed:
                result.append(freed)
                freed = 0
            result.append(change)
        else:
            freed += change
    return [*result, freed] if freed else result
