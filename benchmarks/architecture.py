"""Trace tiny steps of one architecture and compare the engine with them, allocation by allocation.

    python benchmarks/architecture.py CONFIG.json [--sequence N] [--only WORD] [--first] [--write FILE]

CONFIG.json is a small model of the architecture, all sizes different. Every precision meets every attention and every
lever. For what is off, the first place is shown: sizes on both sides, and the names that the engine gives its own.
Exit 1 when any is off. Needs transformers and peft.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from records import NotExpressed, case_of, compare

from peakmem.estimate.interpret import interpret
from peakmem.estimate.replay import size
from peakmem.estimate.settings import structure_of
from peakmem.estimate.tape import Phase
from peakmem.readers.hf_config import CLASSES, from_config
from peakmem.setup import Setup
from peakmem.tables.pictures import grids_of
from peakmem.trace import record as tracing

DTYPES = {"bf16": ("bf16", None), "fp32": ("fp32", None), "amp": ("fp32", "bf16"), "fp16": ("fp16", None)}
TASKS = {"ImageClassification": "image", "MaskedLM": "mlm"}
PAIRS = ("clip", "siglip")
LEVERS: Mapping[str, Mapping[str, Any]] = {
    "plain": {}, "checkpointing": {"checkpointing": True}, "lora": {"lora": {"r": 8, "alpha": 16}},
    "accumulation": {"accumulation": 3},
}


def pictures_of(config: Mapping[str, Any], sequence: int, size: Sequence[int]) -> dict[str, Any]:
    """What the records say of pictures, where the model takes them of any size."""
    model = from_config(config)
    if "encoder_decoder" in model.switches:
        return {"task": "seq2seq", "target_seq": sequence * 2 // 3}
    if not {"any_size", "tiles"} & model.switches:
        seen = "image-text" if "sees" in model.switches else "contrastive" if model.architecture in PAIRS else "causal"
        return {"task": TASKS.get(CLASSES.get(model.architecture, "").rpartition("For")[2], seen)}
    said = dict(zip(("images", "image_height", "image_width"), size, strict=True))
    grid = grids_of(model, Setup.of(sequence=sequence, **said))
    return {"task": "image-text", "pictures": said, "grid": grid}


def settings(config: Mapping[str, Any], sequence: int, size: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Every combination; batches of one, two and three sequences in turn."""
    pictures = pictures_of(config, sequence, size)
    fused = "auto" if "eager_only" in from_config(config).switches else "sdpa"
    for i, (precision, attention, lever) in enumerate(product(DTYPES, (fused, "eager"), LEVERS)):
        dtype, autocast = DTYPES[precision]
        yield {
            "id": f"{config['model_type']}/{precision}/{attention}/{lever}/b{i % 3 + 1}s{sequence}",
            **pictures, "config": dict(config), "dtype": dtype, "autocast": autocast, "attention": attention,
            "checkpointing": False, "optimizer": "AdamW", "optimizer_impl": "foreach", "lora": None,
            "accumulation": 1, "batch": i % 3 + 1, "seq": sequence, **LEVERS[lever],
        }


def named_events(record: Mapping[str, Any], phase: str) -> list[tuple[int, str]]:
    """Our allocations (+) and frees (−) of a phase, with the names of what they are."""
    model, setup, _ = case_of(record, Path())
    structure, numbers = structure_of(model, setup, unfold=True)
    tape = interpret(structure)
    found: list[tuple[int, str]] = []
    now = ""
    for event in tape.events:
        if isinstance(event, Phase):
            now = event.name
        elif isinstance(event, int) and now == phase:
            storage = tape.records[event if event >= 0 else ~event]
            bytes_ = 0 if storage.scratch else int(size(storage.key, numbers))
            if bytes_:
                found.append((bytes_ if event >= 0 else -bytes_, storage.name))
    return found


def show(record: Mapping[str, Any], phase: str, place: str) -> None:
    """Where the first difference of a phase is, and our events around it."""
    print(f"    {phase}: {place}")
    at, number, previous = int(place.split()[1].rstrip(":")), -1, 0
    for bytes_, name in named_events(record, phase):
        if bytes_ > 0 or previous >= 0:
            number += 1
        previous = bytes_
        if at - 4 <= number <= at + 2:
            print(f"    {number:6} {bytes_:+12,} {name}")


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the engine with traced steps of one tiny architecture.")
    parser.add_argument("config", type=Path, help="config.json of a tiny model")
    parser.add_argument("--sequence", type=int, default=33, help="tokens; an odd number by default")
    parser.add_argument("--pictures", type=int, nargs=3, default=(1, 200, 100), help="how many in each sequence, "
                        "height, width, where the model takes any size")
    parser.add_argument("--only", default="", help="a word in the names of the steps that are wanted")
    parser.add_argument("--first", action="store_true", help="stop at the first that is off")
    parser.add_argument("--write", type=Path, help="a file for the records, for the tests")
    arguments = parser.parse_args()
    config = json.loads(arguments.config.read_text(encoding="utf-8"))
    made, off = [], 0
    for setting in settings(config, arguments.sequence, arguments.pictures):
        if arguments.only not in setting["id"]:
            continue
        try:
            record = setting | tracing.trace(setting, events=True)
            difference = compare(record, Path())
        except (NotExpressed, ValueError) as reason:
            print(f"not run  {setting['id']}: {str(reason).splitlines()[0]}")
            continue
        made.append(record)
        print(f"{'off   ' if difference else 'equal '} {setting['id']} {dict(difference.bytes) or ''}", flush=True)
        if difference:
            off += 1
            for phase, place in difference.events.items():
                show(record, phase, place)
                break
            if arguments.first:
                break
    if arguments.write:
        arguments.write.write_text(json.dumps(made, separators=(",", ":")), encoding="utf-8")
    print(f"{len(made) - off} equal, {off} off")
    return 1 if off else 0


if __name__ == "__main__":
    sys.exit(main())
