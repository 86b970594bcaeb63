"""How fast an estimate is: a new structure, the same again, and 1e5 and 1e6 settings at once.

    python benchmarks/speed_estimate.py

Every figure stands beside a yardstick from the same run: a plain loop of Python additions, and for the sweeps the
time that one estimate after the other would take.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

import peakmem
from peakmem.estimate import program_of
from peakmem.estimate.interpret import interpret
from peakmem.estimate.settings import structure_of
from peakmem.plan.sweep import sweep
from peakmem.setup import Setup
from peakmem.tables.models import find_model


def best(run: Callable[[], object], times: int = 30) -> float:
    """Seconds of the quickest of several runs."""
    found = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
    return min(found)


def additions() -> None:
    total = 0
    for number in range(10_000):
        total += number


def main() -> None:
    model = find_model("llama-3.1-8b")
    setup = Setup.of(sequence=8192, precision="bf16")
    structure, _ = structure_of(model, setup)
    yardstick = best(additions)
    print(f"yardstick: 10,000 additions in Python  {yardstick * 1e3:8.3f} ms")
    interpret(structure)
    new = best(lambda: program_of.__wrapped__(structure) and interpret.__wrapped__(structure))
    again = best(lambda: peakmem.estimate(model, setup), 200)
    print(f"a new structure (Llama)                {new * 1e3:8.3f} ms  {new / yardstick:7.2f} × (goal 2 ms)")
    print(f"the same with other numbers            {again * 1e3:8.3f} ms  {again / yardstick:7.2f} × (goal 0.15 ms)")
    random = np.random.default_rng(0)
    for count in (100_000, 1_000_000):
        axes = {"batch": random.integers(1, 64, count), "sequence": random.integers(1, 32_768, count)}
        sweep(model, {name: column[:1000] for name, column in axes.items()}, precision="bf16")
        seconds = best(lambda axes=axes: sweep(model, axes, precision="bf16"), 3)
        print(f"{count:9,} settings at once            {seconds:9.3f} s   a loop: {again * count:7.1f} s, "
              f"{again * count / seconds:5.0f} × as long")


if __name__ == "__main__":
    main()
