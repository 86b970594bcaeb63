"""Estimate and trace the same steps and demand that they agree to the byte.

    python benchmarks/agreement.py [--points N] [--seed TEXT] [--only TEXT] [--workers N] [--verbose]

Architectures × sizes × precision × attention × checkpointing × optimizer × accumulation × tied × lora × freezing ×
sharding and more (agreement_grid.py): for every tiny configuration, settings drawn with a seed, `--points` for each.
Compared are live bytes after every event of every phase, the ends and peaks of phases, every moment of the chart with
its kinds, lines, kernels' scratch and parameters. What one of the two refuses is drawn again; a failure of either is
counted as a byte that is off. The last line is ``N points, M bytes off``; exit 1 unless M is 0.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from threading import Lock

from agreement_compare import Point, differences, traced
from agreement_grid import points

from peakmem.errors import PeakmemError
from peakmem.trace.process import TraceError, Worker

ONE_AT_A_TIME = Lock()  # the engine writes on one tape


def run(grid: list[Point], workers: int, verbose: bool = False) -> tuple[int, int, list[str]]:
    """Compare every point; return points compared, bytes off in all, and a line for each point that is off."""
    lines: list[str] = []
    done = off = 0

    def part(number: int) -> None:
        with ExitStack() as stack:
            worker = stack.enter_context(Worker())
            for point in grid[number::workers]:
                worker = compare(point, worker, stack)

    def compare(point: Point, worker: Worker, stack: ExitStack) -> Worker:
        """Compare one point; returns the process for the next one, another where this one may be gone."""
        nonlocal done, off
        try:
            bytes_off, told = compared(worker, point)
        except TraceError as failure:
            worker = stack.enter_context(Worker())
            bytes_off, told = 1, str(failure).splitlines()[0]
        except PeakmemError as refusal:
            print(f"refused  {point.name}: {refusal}", flush=True)
            return worker
        except Exception as failure:
            bytes_off, told = 1, f"{type(failure).__name__}: {str(failure).splitlines()[0]}"
        done += 1
        off += bytes_off
        if told:
            lines.append(f"off      {point.name} {point.given()}: {told}")
            print(lines[-1], flush=True)
        elif verbose:
            print(f"equal    {point.name}", flush=True)
        return worker

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(part, range(workers)))
    return done, off, lines


def compared(worker: Worker, point: Point) -> tuple[int, str]:
    """Bytes off and what is off. Errors: PeakmemError where one side refuses."""
    with ONE_AT_A_TIME:
        setting = point.setting()
        point.estimate()
    found = worker.call(traced, setting, timeout=300)
    with ONE_AT_A_TIME:
        return differences(point, found)


def main() -> int:
    """Run the grid and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=2, help="settings for each configuration (default: 2)")
    parser.add_argument("--only", default="", help="only points whose name contains this text")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--verbose", action="store_true", help="a line for equal points, too")
    parser.add_argument("--seed", default="", help="draw other settings")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    grid = list(points(arguments.points, arguments.only, arguments.seed))
    done, off, _ = run(grid, arguments.workers, arguments.verbose)
    print(f"{done} points, {off} bytes off")
    return int(off > 0 or not done)


if __name__ == "__main__":
    sys.exit(main())
