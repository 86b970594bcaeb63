"""Recorded forward passes without gradients, and generation, and the estimate in the same terms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peakmem.estimate.settings import structure_of
from peakmem.model import Model
from peakmem.readers.hf_config import from_config
from peakmem.setup import Setup
from tests.reference_steps import changes, grouped

__all__ = ["compared", "grouped", "model_of", "setup_of"]

Record = Mapping[str, Any]
SIDE = 40  # of the pictures, where no file says it


def model_of(record: Record) -> Model:
    model = from_config(record["config"])
    return model.changed(image=SIDE) if model.architecture == "resnet" else model


def setup_of(record: Record) -> Setup:
    attention = "auto" if record["attention"] == "sdpa" else record["attention"]
    target = record["target"] if "encoder_decoder" in model_of(record).switches else 0
    return Setup.of(run="inference", precision=record["precision"], attention=attention, batch=record["batch"],
                    sequence=record["sequence"], target=target, generate=record["generate"],
                    lora_rank=record.get("lora", 0), **record.get("pictures", {}))


def compared(record: Record) -> dict[str, tuple[list[int], list[int]]]:
    """Estimate and record, phase by phase: allocations one by one, the frees between two of them as one sum."""
    structure, numbers = structure_of(model_of(record), setup_of(record), unfold=True)
    ours = changes(structure, numbers)
    return {name: (grouped(ours.get(name, [])), events) for name, events in record["events"].items()}
