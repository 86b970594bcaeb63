"""What the comparisons of single runs share: their flags, a line for each run, and records for the tests."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

Record = dict[str, Any]


def recorded(description: str, settings: Iterable[Record], measure: Callable[[Record], Record],
             compared: Callable[[Record], dict[str, tuple[list[int], list[int]]]]) -> int:
    """Measure each setting and compare it with the engine, phase by phase. The exit code is 1 when any is off."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--only", default="", help="a word in the names of the runs that are wanted")
    parser.add_argument("--write", type=Path, help="a file for the records, for the tests")
    arguments = parser.parse_args()
    records, off = [], 0
    for setting in settings:
        if arguments.only not in setting["id"]:
            continue
        record = setting | measure(setting)
        records.append(record)
        different = [phase for phase, (ours, want) in compared(record).items() if ours != want]
        off += bool(different)
        print(f"{'off   ' if different else 'equal '} {setting['id']} {', '.join(different)}", flush=True)
    if arguments.write:
        lines = ",\n".join(json.dumps(record, separators=(",", ":")) for record in records)
        arguments.write.write_text(f"[{lines}]\n", encoding="utf-8")
    print(f"{len(records) - off} equal, {off} off")
    return 1 if off else 0
