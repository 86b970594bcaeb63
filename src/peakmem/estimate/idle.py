"""Settings that were given and change nothing: said, so that nobody believes they were counted."""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.model import Model
from peakmem.setup import FIELDS, Setup

TRAINS = ("optimizer", "loss", "activations", "training part")
TRAINS_TOO = ("accumulation", "optimizer", "checkpoint", "lora_rank")
NEEDS = (
    ("lora_targets", "lora_rank", "without --lora-rank"),
    ("checkpoint_save", "checkpoint", "without --checkpoint selective"),
    ("loss_chunks", "loss", "without --loss chunked"),
    ("target", "", "in a model without encoder and decoder"),
)


def notes_on_idle(model: Model, setup: Setup) -> Iterator[str]:
    """One sentence for the settings that had no effect, and why."""
    given = [name for name in FIELDS if getattr(setup, name) != FIELDS[name]["default"]]
    if setup.run == "inference":
        yield from idle(given, [name for name in FIELDS if FIELDS[name]["group"] in TRAINS or name in TRAINS_TOO],
                        "in inference")
    else:
        yield from idle(given, [name for name in FIELDS if FIELDS[name]["group"] == "inference"], "in training")
        works = {
            "lora_rank": setup.lora_rank > 0, "checkpoint": setup.checkpoint == "selective",
            "loss": setup.loss == "chunked", "": "encoder_decoder" in model.switches,
        }
        for name, needed, reason in NEEDS:
            if not works[needed]:
                yield from idle(given, [name], reason)
    if setup.gpus > 1 and setup.shard == "none" and setup.run == "training":
        yield (f"--gpus {setup.gpus} without --shard: every GPU holds what one GPU holds; buckets of "
               "DistributedDataParallel are not counted (they are views of the gradients, or as large again)")


def idle(given: list[str], names: list[str], reason: str) -> Iterator[str]:
    """The sentence, where any of these settings was given."""
    found = ["--" + name.replace("_", "-") for name in given if name in names]
    if found:
        yield f"no effect {reason}: {', '.join(found)}"
