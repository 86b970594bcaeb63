"""The page for the tests: from the server, or as a folder from any static host."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@contextmanager
def running(handler: type) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/"
    finally:
        server.shutdown()


@contextmanager
def served() -> Iterator[str]:
    """The page as `peakmem serve` gives it."""
    from tests.web.server import running as server

    with server() as port:
        yield f"http://127.0.0.1:{port}/"


@contextmanager
def folder(path: Path) -> Iterator[str]:
    """A folder on a static host."""
    class Static(SimpleHTTPRequestHandler):
        def __init__(self, *args: object, **kwargs: object) -> None:
            super().__init__(*args, directory=str(path), **kwargs)  # type: ignore[arg-type]

        def log_message(self, *_: object) -> None:
            pass

    with running(Static) as address:
        yield address
