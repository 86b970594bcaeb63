"""200 clients at once against `peakmem serve` on this machine: no error, and memory that has an end.

    python benchmarks/load_server.py [--clients N] [--seconds N]

Three in four questions are those of a slider, some are slow ones, some are mistakes. Exit code 1 at the first error.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks.speed_server import memory, started, stopped

MODELS = ("gpt2", "llama-3.2-1b", "llama-3.1-8b", "qwen3-0.6b", "mixtral-8x7b")
MOST_REQUESTS = 1_000_000


def question(dice: random.Random) -> tuple[str, int]:
    """A request, and the status that it should have."""
    kind = dice.random()
    settings: dict[str, object] = {"sequence": 16 * dice.randint(1, 64), "batch": dice.randint(1, 64)}
    request: dict[str, object] = {"model": dice.choice(MODELS), "settings": settings}
    if kind < 0.75:
        return json.dumps({**request, "lines": 0, "allocator": False}), 200
    if kind < 0.8:
        return json.dumps({**request, "model": "gtp2"}), 400
    if kind < 0.82:
        return json.dumps({**request, "ask": "levers", "settings": {"gpu": "H100 SXM 80GB"}}), 200
    if kind < 0.84:
        return json.dumps({**request, "ask": "room", "settings": {"gpu": "H100 SXM 80GB"}}), 200
    return json.dumps({"ask": dice.choice(["tables", "cells", "growth", "three-layers"])}), 200


async def client(port: int, number: int, end: float, times: list[float], errors: list[str]) -> None:
    """One connection, one question after the other."""
    dice = random.Random(number)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while time.monotonic() < end and len(times) < MOST_REQUESTS and len(errors) < 10:
        text, wanted = question(dice)
        start = time.monotonic()
        writer.write(b"POST /api/ask HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     b"Content-Length: %d\r\n\r\n%s" % (len(text), text.encode()))
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            body = await reader.readexactly(size)
        except (OSError, EOFError, IndexError) as error:
            errors.append(f"{type(error).__name__}: {error}")
            break
        times.append(time.monotonic() - start)
        if int(head[9:12]) != wanted:
            errors.append(f"{head[9:12].decode()} for {text[:80]}: {body[:80]!r}")
    writer.close()


async def load(port: int, pid: int, clients: int, seconds: float) -> int:
    """Ask, watch, print."""
    times: list[float] = []
    errors: list[str] = []
    most = 0
    end = time.monotonic() + seconds
    working = asyncio.gather(*(client(port, i, end, times, errors) for i in range(clients)))
    while not working.done():
        await asyncio.wait([working], timeout=1)
        most = max(most, memory(pid))
    await working
    times.sort()
    print(f"{clients} clients, {seconds:g} s: {len(times):,} answers, {len(times) / seconds:,.0f} a second, "
          f"{len(errors)} errors")
    print(f"waited: median {1e3 * times[len(times) // 2]:,.0f} ms, "
          f"99 % below {1e3 * times[len(times) * 99 // 100]:,.0f} ms, longest {1e3 * times[-1]:,.0f} ms")
    print(f"memory of the server and its engine's processes: at most {most / 2**20:,.0f} MiB")
    for error in errors[:5]:
        print(error)
    return 1 if errors or most > 2**30 else 0


def main() -> int:
    """A server of our own, and the clients."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60)
    given = parser.parse_args()
    process, port = started()
    try:
        return asyncio.run(load(port, process.pid, min(given.clients, 900), min(given.seconds, 600)))
    finally:
        stopped(process)


if __name__ == "__main__":
    sys.exit(main())
