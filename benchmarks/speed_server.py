"""How fast the server is: from the command to the first answer, the first answer by itself, and answers again.

    python benchmarks/speed_server.py [--runs N]

Beside each figure stands `python -c pass`, measured in the same run: machines differ, ratios do less.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import time
from http.client import HTTPConnection
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"
QUICK = '{"model":"llama-3.1-8b","settings":{"sequence":%d},"lines":0,"allocator":false}'


def started() -> tuple[subprocess.Popen[str], int]:
    """`peakmem serve` on a free port."""
    process = subprocess.Popen([sys.executable, "-m", "peakmem", "serve", "--port", "0"], text=True,
                               stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": str(SOURCE)})
    assert process.stdout
    line = process.stdout.readline()
    found = re.search(r":(\d+)/", line)
    assert found, f"the server did not start: {line}"
    return process, int(found[1])


def stopped(process: subprocess.Popen[str]) -> None:
    process.terminate()
    process.communicate(timeout=20)


def memory(pid: int) -> int:
    """Bytes resident in a process and its children; 0 where the system has no /proc."""
    pages = 0
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for one in (pid, *children):
            pages += int(Path(f"/proc/{one}/statm").read_text().split()[1])
    except OSError:
        pass
    return pages * os.sysconf("SC_PAGE_SIZE")


def asked(connection: HTTPConnection, text: str) -> float:
    """Seconds until the whole answer is there."""
    start = time.perf_counter()
    connection.request("POST", "/api/ask", text, {"content-type": "application/json"})
    answer = connection.getresponse()
    body = answer.read()
    assert answer.status == 200, body[:200]
    return time.perf_counter() - start


def nothing() -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return time.perf_counter() - start


def one_start() -> tuple[float, float, list[float], list[float], int]:
    """Command to answer; first answer once it listens; new questions; a remembered one; memory."""
    start = time.perf_counter()
    process, port = started()
    try:
        connection = HTTPConnection("127.0.0.1", port, timeout=60)
        listening = time.perf_counter()
        asked(connection, QUICK % 2048)
        first = time.perf_counter()
        new = [asked(connection, QUICK % (128 * i)) for i in range(1, 101) if i != 16]
        again = [asked(connection, QUICK % 2048) for _ in range(200)]
        return first - start, first - listening, new, again, memory(process.pid)
    finally:
        stopped(process)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    runs = [(nothing(), *one_start()) for _ in range(parser.parse_args().runs)]
    yardstick = min(run[0] for run in runs)
    new = sorted(seconds for run in runs for seconds in run[3])
    again = sorted(seconds for run in runs for seconds in run[4])
    for name, seconds in (
        ("python -c pass", yardstick),
        ("command to first answer, best", min(run[1] for run in runs)),
        ("command to first answer, median", sorted(run[1] for run in runs)[len(runs) // 2]),
        ("first answer of a server that listens", min(run[2] for run in runs)),
        ("a new question, median", new[len(new) // 2]),
        ("the same question again, median", again[len(again) // 2]),
    ):
        print(f"{name:<40}{1e3 * seconds:9.2f} ms  {seconds / yardstick:7.3f} × python -c pass")
    print(f"{'memory with the engine, all processes':<40}{max(run[5] for run in runs) / 2**20:9.0f} MiB")


if __name__ == "__main__":
    main()
