"""A cold `peakmem estimate MODEL --json` beside `python -c pass`, both by the clock and in processor time.

    python benchmarks/cold.py [MODEL] [--runs N] [--most RATIO]

The two are run in turn, and the best of each is taken: what else the machine does only ever adds. Exit code 1 where
the ratio of processor times is above --most.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"


def once(words: list[str]) -> tuple[float, float]:
    """Seconds by the clock, and of processor time, of one process."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, env=env | {"PYTHONPATH": str(SOURCE)})
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default="llama-3.1-8b")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--most", type=float)
    given = parser.parse_args()
    nothing = [sys.executable, "-c", "pass"]
    command = [sys.executable, "-m", "peakmem", "estimate", given.model, "--json"]
    once(command)  # bytecode is written by the first
    pairs = [(once(nothing), once(command)) for _ in range(given.runs)]
    ratio = 0.0
    for name, index in (("clock", 0), ("processor", 1)):
        base, whole = min(a[index] for a, _ in pairs), min(b[index] for _, b in pairs)
        ratio = whole / base
        print(f"{name:<10} python -c pass {1000 * base:6.1f} ms   estimate --json {1000 * whole:6.1f} ms   "
              f"ratio {ratio:.1f}")
    return 1 if given.most and ratio > given.most else 0


if __name__ == "__main__":
    sys.exit(main())
