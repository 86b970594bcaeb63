"""The server for the tests, in a thread, and requests as raw bytes: clients that behave would not send most of them."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from typing import Any

from peakmem.web.listen import bound, server
from peakmem.web.server import Limits
from peakmem.web.worker import Worker


@contextmanager
def running(host: str = "127.0.0.1", engines: Sequence[Any] | None = None, **limits: Any) -> Iterator[int]:
    """The port of a server with these limits; `engines` stand for its two processes; the last is asked first."""
    taken = bound("127.0.0.1", 0)
    made = server(taken, list(engines or (Worker(), Worker())), Limits(**limits), host)
    thread = threading.Thread(target=made.run, kwargs={"sockets": [taken]}, daemon=True)
    thread.start()
    try:
        yield taken.getsockname()[1]
    finally:
        made.should_exit = True
        thread.join(10)
        assert not thread.is_alive()


class Patient:
    """An engine that answers when it is told to, and stands for a real one."""

    def __init__(self) -> None:
        self.asked, self.go = threading.Event(), threading.Event()

    def wake(self) -> None:
        """It is."""

    def ask(self, question: bytes) -> bytes:
        self.asked.set()
        self.go.wait(20)
        return question

    def stop(self) -> None:
        self.go.set()


class Answer:
    """Status, headers by their small names, and body."""

    def __init__(self, found: HTTPResponse) -> None:
        self.status, self.body = found.status, found.read()
        self.headers = {name.lower(): value for name, value in found.getheaders()}

    @property
    def error(self) -> str:
        return str(json.loads(self.body)["error"])


def ask(port: int, body: str | bytes, path: str = "/api/ask", method: str = "POST", **headers: str) -> Answer:
    """One request by http.client."""
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        given = {"content-type": "application/json"} | {k.replace("_", "-"): v for k, v in headers.items()}
        connection.request(method, path, body.encode() if isinstance(body, str) else body,
                           {name: value for name, value in given.items() if value})
        return Answer(connection.getresponse())
    finally:
        connection.close()


def get(port: int, path: str, **headers: str) -> Answer:
    return ask(port, b"", path, "GET", content_type="", **headers)


def raw(port: int, *parts: bytes | float, host: bool = True, wait: float = 15) -> Answer | None:
    """Bytes as they are, with pauses in seconds between them; None where the server closes without an answer."""
    with socket.create_connection(("127.0.0.1", port), timeout=wait) as made:
        try:
            for part in parts:
                if isinstance(part, bytes):
                    made.sendall(part)
                else:
                    time.sleep(part)
        except OSError:
            pass  # the server has had enough; its answer may be there to be read
        try:
            found = HTTPResponse(made)
            found.begin()
            return Answer(found)
        except (ConnectionError, ValueError, OSError):
            return None


HEAD = b"POST /api/ask HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
GPT2 = '{"model":"gpt2","lines":0}'
