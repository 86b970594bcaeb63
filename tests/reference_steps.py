"""Reference records of real training steps, and the estimate in the same terms."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from peakmem.estimate.interpret import interpret
from peakmem.estimate.replay import compiled, replay, size
from peakmem.estimate.settings import structure_of
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Phase
from peakmem.model import Model
from peakmem.readers.hf_config import from_config
from peakmem.setup import Setup

DATA = Path(__file__).parent / "data"
Record = Mapping[str, Any]

PRECISIONS = {
    ("bf16", None): "bf16",
    ("fp16", None): "fp16",
    ("fp32", None): "fp32",
    ("fp32", "bf16"): "amp-bf16",
    ("fp32", "fp16"): "amp-fp16",
}


OPTIMIZERS = {"SGD-momentum": "momentum", "SGD-nesterov": "nesterov", "Adam-amsgrad": "amsgrad"}


@lru_cache(maxsize=1)
def records() -> dict[str, Record]:
    """Every record by its name."""
    return {record["id"]: record for record in json.loads((DATA / "traced_steps.json").read_text())}


def ids_of(*families: str) -> list[str]:
    """Names of the records of these values of `model_type`, for pytest's parametrize."""
    return [name for name, record in records().items() if config_of(record)["model_type"] in families]


def config_of(record: Record) -> dict[str, Any]:
    """The record's config.json."""
    if "config" in record:
        config = dict(record["config"])
    else:
        config = json.loads((DATA / "configs" / record["config_file"]).read_text())
        config |= record.get("config_changes", {})
    return config | {"architectures": ["BertForMaskedLM"]} if record["task"] == "mlm" else config


def model_of(record: Record) -> Model:
    config = config_of(record)
    model = from_config(config)
    return model.changed(image=config["image_size"]) if model.architecture == "resnet" else model  # no file says it


def setup_of(record: Record) -> Setup:
    """The record's settings in our words."""
    given = dict(
        precision=PRECISIONS[record["dtype"], record["autocast"]],
        attention="auto" if record["attention"] == "sdpa" else record["attention"],
        checkpoint="full" if record["checkpointing"] else "none",
        lora_rank=record["lora"]["r"] if record["lora"] else 0,
        optimizer_implementation=record["optimizer_impl"],
        accumulation=record["accumulation"],
        batch=record["batch"],
    )
    given["optimizer"] = OPTIMIZERS.get(record.get("optimizer", "AdamW"), record.get("optimizer", "AdamW").lower())
    for name in ("step", "set_to_none", "frozen_layers"):
        if name in record:
            given[name] = record[name]
    given["clip"] = bool(record.get("clip"))
    given["freeze"] = ",".join(record.get("freeze", ()))
    if record["lora"] and "targets" in record["lora"]:
        given["lora_targets"] = tuple(record["lora"]["targets"] or ("default",))
        given["frozen_layers"] = min(record["lora"].get("layers", (0,)))
    if record["seq"]:
        given["sequence"] = record["seq"]
    if record["task"] == "causal":
        given["images"] = 0
    given |= record.get("pictures") or {}
    if record.get("target_seq"):
        given["target"] = record["target_seq"]
    if record.get("loss"):
        given["loss"] = record["loss"]
    return Setup.of(**given | sharding_of(record))


def sharding_of(record: Record) -> dict[str, Any]:
    """How the record's parameters are divided. A policy that computes in 16 bit over fp32 shards is `mixed`."""
    if record.get("shard") != "fsdp2":
        return {}
    given: dict[str, Any] = dict(
        shard="fsdp2", gpus=record["gpus"], offload=record.get("offload", "none"),
        reshard={True: "layers", False: "none", "all": "all"}[record["reshard_after_forward"]],
        sync_each_batch=record["sync"] == "every",
    )
    if record["compute"]:
        given |= dict(precision="mixed", reduce_dtype="auto" if record["reduce"] == "fp32" else record["compute"])
    return given


def differences(record: Record) -> dict[str, int]:
    """Estimate less record, in bytes, of every phase's end and peak that differs."""
    structure, numbers = structure_of(model_of(record), setup_of(record))
    levels = replay(compiled(interpret(structure)), numbers)
    forward = [level for name, level in levels.items() if name.startswith("forward")]
    backward = [level for name, level in levels.items() if name.startswith("backward")]
    ours = {
        "step_start": levels["start"].end,
        "after_forward": forward[-1].end,
        "forward_peak": max(level.peak for level in forward),
        "after_backward": backward[-1].end,
        "backward_peak": max(level.peak for level in backward),
        "optimizer_peak": levels["optimizer"].peak,
        "step_end": levels["clear"].end,
        "peak": max(level.peak for level in levels.values()),
    }
    return {name: ours[name] - record["bytes"][name] for name in ours if ours[name] != record["bytes"][name]}


def changes(structure: Structure, numbers: Mapping[str, Any]) -> dict[str, list[int]]:
    """Bytes of every allocation (+) and free (-), by phase. Kernel scratch is in no record."""
    tape = interpret(structure)
    found: dict[str, list[int]] = {}
    phase = ""
    for event in tape.events:
        if isinstance(event, Phase):
            phase = event.name
        elif isinstance(event, int):
            storage = tape.records[event if event >= 0 else ~event]
            bytes_ = 0 if storage.scratch else int(size(storage.key, numbers))
            if bytes_:
                found.setdefault(phase, []).append(bytes_ if event >= 0 else -bytes_)
    return found


def events_by_phase(record: Record) -> dict[str, tuple[list[int], list[int]]]:
    """Estimate and record: allocations one by one, the frees between two of them as one sum."""
    ours = changes(*structure_of(model_of(record), setup_of(record), unfold=True))
    pairs = {}
    for part in record["events"]:
        name = {"zero": "clear", "clip": "optimizer.clip"}.get(part["phase"], part["phase"])
        if record["accumulation"] > 1 and name in ("forward", "backward"):
            last = sum(key.startswith(name) for key in ours) - 1
            at = last if part["micro_batch"] == record["accumulation"] - 1 else part["micro_batch"]
            if at > last:
                continue
            name = f"{name}.{at}"
        pairs[name] = (grouped(ours.get(name, [])), grouped(part["bytes"]))
    return pairs


def grouped(events: list[int]) -> list[int]:
    """Allocations as they are; what is freed between two of them, whatever its order, as one number."""
    result: list[int] = []
    for event in events:
        if event > 0 or not result or result[-1] > 0:
            result.append(event)
        else:
            result[-1] += event
    return [event for event in result if event]
