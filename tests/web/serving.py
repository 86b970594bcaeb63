"""The page for the tests: its files and its one question over HTTP, or a folder as any static host gives it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from peakmem.web.answer import estimate_json
from peakmem.web.page import files

TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript", ".css": "text/css"}


@cache
def page() -> dict[str, bytes]:
    return files("served")


class Handler(BaseHTTPRequestHandler):
    """GET a file of the page, POST a question."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        name = self.path.split("?")[0].lstrip("/") or "index.html"
        content = page().get(name)
        self.answer(404 if content is None else 200, content or b"", TYPES.get(Path(name).suffix, "text/plain"))

    def do_POST(self) -> None:
        text = estimate_json(self.rfile.read(int(self.headers["content-length"])).decode())
        self.answer(400 if text.startswith('{"error"') else 200, text.encode(), "application/json")

    def answer(self, status: int, content: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


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
    with running(Handler) as address:
        yield address


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
