"""Counts of a folder of config.json files against its params.csv, row by row.

Run: python benchmarks/counts.py DIR. Compared: unique parameters, those that one token meets, key/value bytes per
token in bf16, the constant state of one sequence, bytes of the quantised weights. A row without a count must be
refused. Rows of families that peakmem does not read are printed as missing. Exits 1 when anything differs.

Quantised bytes are printed twice: as the column defines them, packed weights with their scales and everything else, and
as they lie in memory. They differ for bitsandbytes alone, whose matrices have codes and offsets beside their scales.
The column counts one offset, of all that there are: that is said, not hidden.

So are keys and values that are one tensor, which the column counts twice: it adds up what the cache's attributes name.
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
from peakmem.estimate.packed import Packed
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
ONE_OFFSET = 4  # bytes
TABLES = ("/code", "/code of absmax", "/offset")


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
           if name in found and found[name] != count - (ONE_OFFSET if name == "quantised" and found["offsets"] else 0)}
    if off:
        return "differs", "; ".join(f"{name} {ours:,}, not {count:,}" for name, (ours, count) in off.items())
    unknown = [name for name in wanted if name not in found]
    return "equal", "equal" + (f", {', '.join(unknown)} not counted" if unknown else "") + (
        on_shared_keys(found) + on_quantised(found, wanted))


def on_shared_keys(found: dict[str, int]) -> str:
    """What lies in memory where keys and values are one tensor."""
    if not found.get("one tensor"):
        return ""
    return ("; keys and values that are one tensor are in the column twice: in memory "
            f"{found['KV per token'] - found['one tensor']:,} bytes a token")


def on_quantised(found: dict[str, int], wanted: dict[str, int]) -> str:
    """Both readings of quantised weights, and which of them the column has."""
    if "quantised" not in wanted or "quantised" not in found:
        return ""
    said = f"; packed weights and scales {found['quantised']:,} bytes: the column"
    if found["offsets"]:
        said += f" is these and {ONE_OFFSET} bytes, one of {found['offsets']} offsets"
    return said + f"; in memory, with codes and offsets, {found['in memory']:,} bytes"


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
    caches = [cached(model, tokens) for tokens in SEQUENCES]
    slope, twice = ((last - first) // (SEQUENCES[1] - SEQUENCES[0]) for first, last in zip(*caches, strict=True))
    found |= {"KV per token": slope + twice, "one tensor": twice, "state": caches[0][0] - slope * SEQUENCES[0]}
    if quantised:
        found |= weights(structure, numbers)
    return found


def cached(model: Model, tokens: int) -> tuple[int, int]:
    """Bytes of caches and states after the prompt; of a decoder that reads an encoder, after so many of its own.

    And how many of them are keys and values at once.
    """
    own = {"target": tokens} if "encoder_decoder" in model.switches else {"sequence": tokens}
    setup = Setup.of(run="inference", generate=1, precision="bf16", **own)
    structure, numbers = structure_of(model, setup)
    tape, phase, total, both = interpret(structure), "", 0, 0
    for event in tape.events:
        phase = getattr(event, "name", phase) if type(event) is not int else phase
        if type(event) is int and event >= 0 and phase == "prefill":
            record = tape.records[event]
            if record.kind == "kv_cache":
                amount = size(record.key, numbers) * (value(record.fold, numbers) if record.fold else 1)
                total, both = total + amount, both + amount * record.name.endswith("keys and values")
    return total, both


def weights(structure: Any, numbers: Any) -> dict[str, int]:
    """Bytes of all parameters: without the tables of bitsandbytes, and as they lie in memory; how many offsets."""
    found = {"quantised": 0, "in memory": 0, "offsets": 0}
    seen: set[int] = set()
    for parameter in interpret(structure).parameters.values():
        times = value(parameter.fold, numbers) if parameter.fold else 1
        for x in parameter.parts if isinstance(parameter, Packed) else [parameter]:
            if not x.storage or id(x.storage.record) in seen:
                continue
            record = x.storage.record
            seen.add(id(record))
            bytes_ = size(record.key, numbers) * times
            found["in memory"] += bytes_
            found["quantised"] += 0 if record.name.endswith(TABLES) else bytes_
            found["offsets"] += times if record.name.endswith("/offset") else 0
    return found


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
