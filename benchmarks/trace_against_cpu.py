"""Run records with real kernels on the CPU and compare every phase with a trace on a fake CPU.

    python benchmarks/trace_against_cpu.py FILE [--only TEXT] [--every N] [--verbose]

Peak and end of each phase of the last step, scalars of up to 16 bytes left out. oneDNN is off: its scratch is in no
tensor. Autocast and attention kernels are the CPU's here. The last line is ``N equal, N off``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import warnings
from pathlib import Path


def main() -> int:
    """Compare the records and return the exit code: 1 if any phase differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", default="", help="only records whose id contains this text")
    parser.add_argument("--every", type=int, default=1, help="only every N-th of these")
    parser.add_argument("--verbose", action="store_true", help="a line for equal records too")
    arguments = parser.parse_args()

    warnings.simplefilter("ignore")
    import torch
    import transformers

    sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "trace"))
    from real_cpu import differences

    transformers.logging.set_verbosity_error()
    torch.backends.mkldnn.enabled = False
    torch.set_num_threads(1)
    records = [r for r in json.loads(arguments.file.read_text()) if arguments.only in r["id"]]
    equal = off = 0
    for record in records[:: arguments.every]:
        found = differences(record)
        equal, off = equal + (not found), off + bool(found)
        if found or arguments.verbose:
            print(record["id"], found or "equal", flush=True)
    print(f"{equal} equal, {off} off")
    return int(off > 0)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
