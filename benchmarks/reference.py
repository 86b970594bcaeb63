"""Compare the engine with reference records, byte for byte.

    python benchmarks/reference.py FILE [--configs DIR] [--all]

A line for each record: equal, or bytes off by phase and the first event that differs, or what has no word in the
settings. The last line counts. Exit 1 when any is off; `--all` counts what is not expressed as off.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from records import NotExpressed, compare


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare the engine with reference records, byte for byte.")
    parser.add_argument("file", type=Path, help="a JSON list of records")
    parser.add_argument("--configs", type=Path, help="folder with their config files; default: configs/ beside FILE")
    parser.add_argument("--all", action="store_true", help="count what is not expressed as off")
    arguments = parser.parse_args()
    configs = arguments.configs or arguments.file.parent / "configs"
    equal = off = missing = 0
    try:
        records = json.loads(arguments.file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        print(f"{arguments.file}: {error}", file=sys.stderr)
        return 2
    for record in records:
        try:
            difference = compare(record, configs)
        except NotExpressed as reason:
            missing += 1
            print(f"not expressed  {record.get('id')}: {reason}")
            continue
        if difference:
            off += 1
            print(f"off            {record.get('id')}: {dict(difference.bytes)} {dict(difference.events)}")
        else:
            equal += 1
            print(f"equal          {record.get('id')}")
    print(f"{equal} equal, {off} off, {missing} not expressed")
    return 1 if off or (arguments.all and missing) else 0


if __name__ == "__main__":
    sys.exit(main())
