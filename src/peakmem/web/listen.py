"""`peakmem serve`: a socket, the engine's processes, and uvicorn. Needs the extra `serve`."""

from __future__ import annotations

import os
import socket
import sys
from typing import TYPE_CHECKING, Any

from peakmem.errors import Impossible, Missing, printable
from peakmem.web.guard import is_address, is_loopback
from peakmem.web.worker import Worker

if TYPE_CHECKING:
    from peakmem.web.server import Limits

RATE = 50.0
"""Requests a second from one address, where other machines can ask; a slider makes 60 while it is dragged."""


def serve(host: str = "127.0.0.1", port: int = 8000, browser: bool = False) -> None:
    """Answer until Ctrl-C. Errors: Missing, Impossible where the address cannot be had."""
    taken = bound(host, port)
    # The last one is asked first. It imports the engine while this process imports the server; the others start when
    # they are needed, so that on two cores nothing is in the way of the first answer. Four, however few the cores: only
    # so is there a turn for others beside one client's fit and estimate.
    workers = [*(Worker(now=False) for _ in range(3)), Worker()]
    try:
        from peakmem.web.server import Limits
    except ImportError:
        for worker in workers:
            worker.stop()
        raise Missing("the server needs starlette and uvicorn", "serve") from None
    here = address(taken, host)
    print(f"peakmem is at {here} (Ctrl-C ends it)", flush=True)
    local = is_loopback(taken.getsockname()[0])
    if not local:
        print(f"peakmem: warning: other machines can reach {printable(host)[1:-1]}; there is no password",
              file=sys.stderr)
    if browser:
        import webbrowser

        webbrowser.open(here)
    server(taken, workers, Limits() if local else Limits(rate=RATE), host).run(sockets=[taken])


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens. Errors: Impossible."""
    try:
        family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM,
                                                              flags=socket.AI_PASSIVE)[0]
        made = socket.socket(family, kind, protocol)
        if os.name == "posix":
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(place)
        made.listen(1024)
        made.setblocking(False)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise Impossible(f"--host {printable(host)} --port {port}: {reason}") from None
    return made


def address(taken: socket.socket, host: str) -> str:
    """What to type into a browser."""
    where, port = taken.getsockname()[:2]
    name = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(where, host or where)
    return f"http://{f'[{name}]' if ':' in name else name}:{port}/"


def server(taken: socket.socket, workers: list[Worker], limits: Limits, host: str) -> Any:
    """uvicorn's server, not yet running."""
    import uvicorn

    from peakmem.web.server import Service

    names = frozenset() if is_address(host) else frozenset({host.lower()})
    return uvicorn.Server(uvicorn.Config(
        Service(workers, limits, names).app(), http=patient(limits), loop="asyncio", ws="none", lifespan="on",
        log_config=None, log_level="error", access_log=False, server_header=False, proxy_headers=False,
        limit_concurrency=limits.connections, timeout_keep_alive=int(limits.idle), timeout_graceful_shutdown=3,
        h11_max_incomplete_event_size=16_384))


def patient(limits: Limits) -> Any:
    """uvicorn's protocol. It waits for ever for the head of a request, and for a client to read; this one does not."""
    import asyncio

    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Patient(H11Protocol):
        timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.wait_for_head()

        def wait_for_head(self) -> None:
            if self.timer is None:
                self.timer = self.loop.call_later(limits.head, self.transport.close)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.conn.their_state is h11.IDLE:
                self.wait_for_head()
            elif self.timer is not None:
                self.timer.cancel()
                self.timer = None

        def connection_lost(self, exc: Exception | None) -> None:
            if self.timer is not None:
                self.timer.cancel()
            super().connection_lost(exc)

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self.loop.call_later(limits.reader, self.still_reads, self.left())

        def left(self) -> int:
            return self.transport.get_write_buffer_size()

        def still_reads(self, before: int) -> None:
            now = self.left()
            if now and now >= before:
                self.transport.abort()
            elif now:
                self.loop.call_later(limits.reader, self.still_reads, now)

    return Patient
