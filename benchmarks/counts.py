"""Counts of a folder of config.json files against its params.csv, row by row.

Run: python benchmarks/counts.py DIR. Compared: unique parameters, those that one token meets, key/value bytes per
token in bf16, the constant state of one sequence, bytes of the quantised weights. A row without a count must be
refused. Rows of families that peakmem does not read are printed as missing. Exits 1 when anything differs.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

from peakmem.architectures import code_of
from peakmem.errors import PeakmemError
from peakmem.estimate import parameters_of
from peakmem.estimate.interpret import interpret
from peakmem.estimate.replay import size, value
from peakmem.estimate.settings import structure_of
from peakmem.model import Model
from peakmem.setup import Setup

COLUMNS = {
    "params_total_unique": "total", "params_active_per_token": "active",
    "kv_bytes_per_token_bf16_below_window": "KV per token", "constant_state_bytes_per_seq": "state",
    "expected_weight_bytes_quantized_derived": "quantised",
}
SEQUENCES = (16, 32)  # shorter than any window: the cache grows by the slope between them


def main(folder: Path) -> int:
    """Print one line for each row; 1 when one differs, else 0."""
    different = missing = equal = 0
    with open(folder / "params.csv", newline="") as file:
        for row in csv.DictReader(file):
            wanted = {ours: int(row[theirs]) for theirs, ours in COLUMNS.items() if row.get(theirs)}
            verdict, line = judge(folder / f"{row['name']}.json", wanted)
            print(f"{row['name']:32} {line}")
            different += verdict == "differs"
            missing += verdict == "missing"
            equal += verdict == "equal"
    print(f"{equal} equal, {different} different, {missing} missing")
    return 1 if different else 0


def judge(path: Path, wanted: dict[str, int]) -> tuple[str, str]:
    """A verdict, and what to print of one row."""
    try:
        found = counts(path, "quantised" in wanted)
    except PeakmemError as error:
        if not wanted:
            return "equal", f"refused, as it must be: {error}"
        return "missing", f"missing: {error}"
    if not wanted:
        return "differs", "counted, and must be refused"
    off = {name: (found[name], count) for name, count in wanted.items()
           if name in found and found[name] != count}
    if off:
        return "differs", "; ".join(f"{name} {ours:,}, not {count:,}" for name, (ours, count) in off.items())
    unknown = [name for name in wanted if name not in found]
    return "equal", "equal" + (f", {', '.join(unknown)} not counted" if unknown else "")


def counts(path: Path, quantised: bool) -> dict[str, int]:
    """All that params.csv has of one file."""
    model = Model.read(path)
    generates = model.vocabulary and "inference" in getattr(code_of(model.architecture), "RUNS", ("inference",))
    setup = Setup.of(run="inference", sequence=SEQUENCES[0], precision="bf16") if generates else Setup.of(sequence=16)
    structure, numbers = structure_of(model, setup)
    parameters = parameters_of(structure, numbers)
    found = {"total": parameters.total, "active": parameters.active}
    if setup.run != "inference":
        return found
    caches = [cached(model, sequence) for sequence in SEQUENCES]
    slope = (caches[1] - caches[0]) // (SEQUENCES[1] - SEQUENCES[0])
    found |= {"KV per token": slope, "state": caches[0] - slope * SEQUENCES[0]}
    if quantised:
        found["quantised"] = weights(structure, numbers)
    return found


def cached(model: Model, sequence: int) -> int:
    """Bytes of caches and states after the prompt."""
    structure, numbers = structure_of(model, Setup.of(run="inference", sequence=sequence, precision="bf16"))
    tape, phase, total = interpret(structure), "", 0
    for event in tape.events:
        phase = getattr(event, "name", phase) if type(event) is not int else phase
        if type(event) is int and event >= 0 and phase == "prefill":
            record = tape.records[event]
            if record.kind == "kv_cache":
                total += size(record.key, numbers) * (value(record.fold, numbers) if record.fold else 1)
    return total


def weights(structure: Any, numbers: Any) -> int:
    """Bytes of the parameters as they lie in memory; of nf4 the table has no code tables, and one offset in all."""
    tape = interpret(structure)
    names: set[Any] = set()
    total = 0
    for record in tape.records:
        if record.name.endswith(("/code", "/offset")):
            total += 4 * ("/offset" not in names and record.name.endswith("/offset"))
            names.add(record.name[record.name.rindex("/"):])
        elif record.kind == "weights" and id(record) not in names and not record.name.endswith("inv_freq"):
            names.add(id(record))
            total += size(record.key, numbers) * (value(record.fold, numbers) if record.fold else 1)
    return total


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
