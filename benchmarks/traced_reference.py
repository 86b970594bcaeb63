"""Trace every record of a file of reference steps again and compare every byte.

    python benchmarks/traced_reference.py FILE [--configs DIR] [--only TEXT] [--verbose]

Compares `bytes`, micro-batches included, the kernels taken, the parameter counts and, where a record has them, all
events (releases inside one operation in any order). Of the simulated allocator only the default settings: with
expandable segments the records take the smallest free block that fits, while PyTorch, and our simulation, count a block
that can still grow with all it can grow to (CUDACachingAllocator.cpp, get_free_block).
The last line is ``N equal, N off``; the exit code is 1 if
any record is off.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FIELDS = (
    "bytes",
    "bytes_unrounded",
    "n_params",
    "n_trained",
    "sdpa_kernels",
    "by_kind_after_forward",
    "by_kind_at_peak",
    "allocator",
)


def setting(record: dict[str, Any], configs: Path | None) -> dict[str, Any]:
    """Return the record with its configuration filled in and changed as it says."""
    config = record.get("config")
    if config is None:
        if configs is None:
            raise SystemExit(f"{record['id']} names {record['config_file']}: give its folder with --configs")
        config = json.loads((configs / record["config_file"]).read_text())
    return {**record, "config": {**config, **(record.get("config_changes") or {})}}


def settled(changes: list[int]) -> list[int]:
    """Return the events with each run of releases sorted: their order inside an operation means nothing."""
    out: list[int] = []
    run: list[int] = []
    for change in changes:
        if change < 0:
            run.append(change)
        else:
            out += sorted(run)
            run = []
            out.append(change)
    return out + sorted(run)


def differences(expected: dict[str, Any], found: dict[str, Any]) -> Iterator[str]:
    """Yield one line for each number that is not the same."""
    for field in FIELDS:
        if field not in expected:
            continue
        want, have = expected[field], found[field]
        if isinstance(want, dict):
            for key in want.keys() | have.keys():
                if want.get(key) != have.get(key) and key != "expandable_segments":
                    yield f"{field}.{key}: {have.get(key)}, expected {want.get(key)}"
        elif want != have:
            yield f"{field}: {have}, expected {want}"
    for want, have in zip(expected.get("events", ()), found.get("events", ()), strict=True):
        ours, theirs = settled(have["bytes"]), settled(want["bytes"])
        if ours != theirs:
            at = next(
                (i for i, pair in enumerate(zip(ours, theirs)) if pair[0] != pair[1]),
                min(len(ours), len(theirs)),
            )
            yield f"{want['phase']} events from {at}: {ours[at : at + 6]}, expected {theirs[at : at + 6]}"


def main() -> int:
    """Compare all records and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--configs", type=Path, help="folder of the configurations that records name")
    parser.add_argument("--only", default="", help="only records whose id contains this text")
    parser.add_argument("--verbose", action="store_true", help="a line for equal records too")
    arguments = parser.parse_args()

    warnings.simplefilter("ignore")
    import transformers

    from peakmem.trace import record

    transformers.logging.set_verbosity_error()
    equal = off = 0
    for expected in json.loads(arguments.file.read_text()):
        if arguments.only not in expected["id"]:
            continue
        start = time.perf_counter()
        found = record.trace(setting(expected, arguments.configs), events="events" in expected)
        took = time.perf_counter() - start
        lines = list(differences(expected, found))
        equal, off = equal + (not lines), off + bool(lines)
        if lines or arguments.verbose:
            print(
                f"{expected['id']}: {'off' if lines else 'equal'}, {took:.1f} s",
                *lines,
                sep="\n    ",
                flush=True,
            )
    print(f"{equal} equal, {off} off")
    return int(off > 0)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    # Autograd's worker thread for the fake device may abort an ordinary interpreter exit.
    os._exit(code)
