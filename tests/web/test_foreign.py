"""What comes from outside: C30's bodies, senders, pages, hosts and paths. Each is refused before any work is done."""

from __future__ import annotations

import gzip
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the server's tests need the extra: pip install -e '.[serve]'")

from peakmem.web.answer import estimate_json
from peakmem.web.request import MOST
from tests.web.server import GPT2, HEAD, ask, get, raw, running


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with running(head=1.0, body=1.0, idle=1.0, reader=0.5) as found:
        yield found


# C30: bodies

def test_ten_megabytes(port: int) -> None:
    found = ask(port, b" " * 10_000_000)
    assert found.status == 413 and found.error == f"the request is longer than {MOST:,} characters"


def test_ten_megabytes_of_brackets(port: int) -> None:
    assert ask(port, b"[" * 10_000_000).status == 413
    found = ask(port, b"[" * 1_000_000)
    assert found.status == 400 and found.body.decode() == estimate_json("[" * 1_000_000)


def test_characters_are_counted_not_bytes(port: int) -> None:
    text = '{"model":"' + "€" * (MOST - 20) + '"}'
    assert ask(port, text).body.decode() == estimate_json(text)
    found = ask(port, "€" * (MOST + 1))
    assert found.status == 413 and found.body.decode() == estimate_json("€" * (MOST + 1))


@pytest.mark.parametrize("length", ["1000000000000", "9" * 4000])
def test_a_length_of_a_terabyte_is_refused_at_once(port: int, length: str) -> None:
    start = time.monotonic()
    found = raw(port, HEAD + f"Content-Length: {length}\r\n\r\n".encode() + b"{")
    assert (found is None or found.status in (400, 413)) and time.monotonic() - start < 0.9


@pytest.mark.parametrize("length", ["-1", "1e3", "0x10", "1, 2", "²"])
def test_a_length_that_is_no_number(port: int, length: str) -> None:
    found = raw(port, HEAD + f"Content-Length: {length}\r\n\r\n".encode() + b"{}")
    assert found and found.status == 400


def test_a_body_that_does_not_come(port: int) -> None:
    start = time.monotonic()
    found = raw(port, HEAD + b"Content-Length: 1000\r\n\r\n{")
    assert found and found.status == 408 and 0.8 < time.monotonic() - start < 8


def test_a_body_byte_by_byte(port: int) -> None:
    found = raw(port, HEAD + b"Content-Length: 1000\r\n\r\n", *([b" ", 0.1] * 30))
    assert found and found.status == 408


def test_a_head_that_does_not_end(port: int) -> None:
    start = time.monotonic()
    assert raw(port, b"POST /api/ask HTTP/1.1\r\nHost: localhost\r\n", *([b"X-A: b\r\n", 0.1] * 30)) is None
    assert time.monotonic() - start < 8
    assert raw(port) is None  # a connection on which nothing comes


def test_the_head_of_a_second_request_must_come_too(port: int) -> None:
    first = HEAD + b"Content-Length: 2\r\n\r\n{}"
    start = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=10) as made:
        made.sendall(first)
        made.recv(100_000)
        made.sendall(b"POST /api")
        while made.recv(100_000):
            pass
    assert time.monotonic() - start < 8


def test_a_head_without_end(port: int) -> None:
    found = raw(port, b"GET /" + b"a" * 100_000)
    assert found is None or found.status == 400
    found = raw(port, b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X-A: b\r\n" * 100_000)
    assert found is None or found.status == 400


def test_chunks_without_end(port: int) -> None:
    found = raw(port, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *([b"100000\r\n" + b" " * 2**20 + b"\r\n"] * 8))
    assert found is None or found.status == 413
    found = raw(port, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *([b"1\r\n \r\n", 0.1] * 30))
    assert found and found.status == 408


def test_chunks_that_end_are_a_body(port: int) -> None:
    text = GPT2.encode()
    found = raw(port, HEAD + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(text), text))
    assert found and found.body.decode() == estimate_json(GPT2)


def test_length_and_chunks_at_once(port: int) -> None:
    """Request smuggling: whatever is read, the connection is not used again."""
    found = raw(port, HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /health HTTP/1.1\r\n"
                b"Host: localhost\r\n\r\n")
    assert found is None or found.status == 400


def test_a_bomb_is_not_unpacked(port: int) -> None:
    bomb = gzip.compress(b" " * 50_000_000)
    for coding in ("gzip", "deflate", "br", "gzip, gzip"):
        assert ask(port, bomb, content_encoding=coding).status == 415
    assert ask(port, bomb).status == 400  # and without a name it is no JSON


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "",
                                  "application/jsonp", "application/json; charset=utf-16"])
def test_other_types(port: int, kind: str) -> None:
    assert ask(port, GPT2, content_type=kind).status == 415


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON",
                                  'application/json;charset="UTF-8"'])
def test_the_type_as_others_write_it(port: int, kind: str) -> None:
    assert ask(port, GPT2, content_type=kind).status == 200


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "HEAD", "TRACE", "OPTIONS"])
def test_other_methods(port: int, method: str) -> None:
    found = ask(port, b"", method=method)
    assert found.status == 405 and found.headers["allow"] == "POST"
    if method not in ("GET", "HEAD"):
        assert ask(port, b"", "/index.html", method).status == 405


def test_bytes_that_are_no_text(port: int) -> None:
    found = ask(port, b'{"model":"\xff"}')
    assert found.status == 400 and found.error == "the request is not UTF-8 text"
    assert ask(port, b"").status == 400


# C30: whose page asks

@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example",
                                  "localhost.evil.example", "localhost@evil.example", "", "a b",
                                  "localhost:", "localhost:x", "[::1", "xn--"])
def test_foreign_hosts(port: int, host: str) -> None:
    found = raw(port, f"GET / HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert found and found.status in (400, 403)


def test_no_host_and_two(port: int) -> None:
    for head in (b"GET / HTTP/1.1\r\n\r\n", b"GET / HTTP/1.0\r\n\r\n",
                 b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n"):
        found = raw(port, head)
        assert found and found.status == 400


@pytest.mark.parametrize("host", ["localhost", "localhost:9000", "127.0.0.1", "[::1]:8000", "192.168.0.7:80"])
def test_hosts_that_nobody_can_point_here(port: int, host: str) -> None:
    found = raw(port, f"GET /health HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
    assert found and found.status == 200


def test_a_name_that_was_given() -> None:
    with running("box.example") as port:
        assert get(port, "/health", host="box.example:80").status == 200
        assert get(port, "/health", host="other.example").status == 403


@pytest.mark.parametrize("headers", [
    {"origin": "http://evil.example"}, {"origin": "null"}, {"origin": "http://127.0.0.1:1"}, {"origin": "file://"},
    {"origin": " "}, {"sec_fetch_site": "cross-site"}, {"sec_fetch_site": "same-site"}, {"origin": "http://[::1"},
])
def test_foreign_pages(port: int, headers: dict[str, str]) -> None:
    found = ask(port, GPT2, **headers)
    assert found.status == 403 and found.error == "a page from elsewhere may not ask"


def test_our_page(port: int) -> None:
    assert ask(port, GPT2, origin=f"http://127.0.0.1:{port}", sec_fetch_site="same-origin").status == 200
    assert ask(port, GPT2, host="localhost", origin="https://localhost").status == 200  # behind one that speaks TLS


# C30: paths and addresses

@pytest.mark.parametrize("path", [
    "/..%2f..%2fetc/passwd", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//etc/passwd", "/..\\..\\etc\\passwd",
    "/assets/../server.py", "/server.py", "/index.html%00", "/%00", "/index.html/", "/__pycache__", "/.git/config",
    "/peakmem.zip", "/%ff%fe", "/a" * 2000, "/answer.py", "/%c0%ae%c0%ae/etc/passwd",
])
def test_paths_that_lead_out(port: int, path: str) -> None:
    found = raw(port, f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert found and found.status in (400, 404) and b"root:" not in found.body


@pytest.mark.parametrize("target", ["http://169.254.169.254/", "http://localhost/../etc/passwd", "*"])
def test_the_server_is_no_proxy(port: int, target: str) -> None:
    found = raw(port, f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    assert found and found.status in (400, 404)


@pytest.mark.parametrize("request_", [
    {"config_path": "/etc/shadow"}, {"model": "/etc/passwd"}, {"model": "./config.json"}, {"model": "-"},
    {"model": "file:///etc/passwd"}, {"model": "http://169.254.169.254/latest"}, {"config": "/etc/passwd"},
    {"config": "http://169.254.169.254/"}, {"config": {"_name_or_path": "/etc/passwd"}},
    {"settings": {"plot": "/tmp/x"}},
    {"settings": {"gpu": "/etc/passwd"}}, {"settings": {"optimizer": "../../etc/passwd"}}, {"file": "/dev/zero"},
])
def test_no_file_and_no_address_is_read(port: int, request_: dict[str, Any]) -> None:
    found = ask(port, json.dumps(request_))
    assert found.status == 400 and b"root:" not in found.body
