"""The server: what it answers, and what it refuses before it does any work."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("starlette", reason="the server's tests need starlette and uvicorn: pip install 'peakmem[serve]'")
pytest.importorskip("uvicorn", reason="the server's tests need starlette and uvicorn: pip install 'peakmem[serve]'")

from peakmem.web.answer import estimate_json  # noqa: E402
from peakmem.web.page import files  # noqa: E402
from peakmem.web.request import MOST  # noqa: E402
from tests.web.server import HEAD, ask, get, raw, running  # noqa: E402

GPT2 = '{"model":"gpt2","lines":0}'


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with running(head=1.0, body=1.0, idle=1.0, reader=0.5) as found:
        yield found


def alive(port: int) -> bool:
    return get(port, "/health").status == 200


def test_answers_are_the_functions(port: int) -> None:
    for path in ("/api/ask", "/api/estimate"):
        found = ask(port, GPT2, path)
        assert (found.status, found.body.decode()) == (200, estimate_json(GPT2))
    found = ask(port, '{"model":"gtp2"}')
    assert (found.status, found.body.decode()) == (400, estimate_json('{"model":"gtp2"}'))


def test_the_page_is_its_files(port: int) -> None:
    for name, content in files("served").items():
        found = get(port, f"/{name}", accept_encoding="identity")
        assert (found.status, found.body) == (200, content), name
        assert get(port, f"/{name}", if_none_match=found.headers["etag"]).status == 304
    packed = get(port, "/", accept_encoding="gzip")
    assert gzip.decompress(packed.body) == files("served")["index.html"]


def test_health(port: int) -> None:
    assert json.loads(get(port, "/health").body)["status"] == "ok"


def test_headers_protect_the_page(port: int) -> None:
    for found in (get(port, "/"), get(port, "/nothing"), ask(port, GPT2), ask(port, GPT2, origin="http://evil.example")):
        assert "default-src 'none'" in found.headers["content-security-policy"]
        assert "unsafe" not in found.headers["content-security-policy"]
        assert found.headers["x-content-type-options"] == "nosniff"
        assert not [name for name in found.headers if name.startswith("access-control") or name == "server"]


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


@pytest.mark.parametrize("kind", ["application/json; charset=utf-8", "Application/JSON", 'application/json;charset="UTF-8"'])
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

@pytest.mark.parametrize("host", ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil.example",
                                  "localhost@evil.example", "", "a b", "localhost:", "localhost:x", "[::1", "xn--"])
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
    {"config": "http://169.254.169.254/"}, {"config": {"_name_or_path": "/etc/passwd"}}, {"settings": {"plot": "/tmp/x"}},
    {"settings": {"gpu": "/etc/passwd"}}, {"settings": {"optimizer": "../../etc/passwd"}}, {"file": "/dev/zero"},
])
def test_no_file_and_no_address_is_read(port: int, request_: dict[str, Any]) -> None:
    found = ask(port, json.dumps(request_))
    assert found.status == 400 and b"root:" not in found.body


# Bounds

def test_a_rate(port: int) -> None:
    with running(rate=5.0, burst=10) as limited:
        statuses = [get(limited, "/health").status for _ in range(30)]
        assert statuses[:10] == [200] * 10 and 429 in statuses
        time.sleep(0.5)
        assert get(limited, "/health").status == 200


def slow(layers: int) -> str:
    """A question that takes seconds: every layer is of another kind."""
    axes = {"batch": {"from": 1, "to": 250}, "dropout": [0.0, 0.1], "clip": [True, False]}
    return json.dumps({"ask": "sweep", "model": "llama-3.1-405b", "settings": {"frozen_layers": layers}, "axes": axes})


def test_an_answer_that_takes_too_long() -> None:
    with running(answer=0.2) as port:
        alive(port)
        found = ask(port, slow(1))
        assert found.status == 503 and "longer than 0.2 seconds" in found.error
        time.sleep(0.5)
        assert ask(port, '{"ask":"cells"}').status in (200, 503) and alive(port)


def test_who_leaves_is_not_worked_for() -> None:
    with running() as port:
        text = [slow(layers).encode() for layers in range(2, 22)]
        for body in text:
            with socket.create_connection(("127.0.0.1", port)) as made:
                made.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        start = time.monotonic()
        assert ask(port, GPT2).status == 200
        assert time.monotonic() - start < 8


def test_quick_questions_do_not_wait_for_slow_ones() -> None:
    with running() as port, ThreadPoolExecutor(4) as threads:
        long = [threads.submit(ask, port, slow(layers)) for layers in range(30, 34)]
        time.sleep(0.2)
        assert ask(port, '{"model":"gpt2","allocator":false}').status == 200
        assert not all(one.done() for one in long)
        assert [one.result().status for one in long] == [200] * 4


def test_who_does_not_read_is_left() -> None:
    with running(reader=0.3, idle=1.0) as port:
        body = b'{"model":"mixtral-8x7b","timeline":true,"lines":5000}'
        request = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
        with socket.socket() as made:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            made.connect(("127.0.0.1", port))
            made.settimeout(10)
            made.sendall(request * 40)
            time.sleep(3)
            size = 0
            with pytest.raises(ConnectionError):
                while part := made.recv(65536):
                    size += len(part)
                raise ConnectionError("closed" if size < 10_000_000 else "")
            assert size < 10_000_000
        assert alive(port)


def test_the_engine_may_die(port: int) -> None:
    from peakmem.web.worker import Gone, Worker

    worker = Worker()
    assert worker.ask(GPT2.encode()).decode() == estimate_json(GPT2)
    threading.Timer(0.3, worker.stop).start()
    with pytest.raises(Gone):
        for layers in range(50, 80):
            worker.ask(slow(layers).encode())
    assert worker.ask(GPT2.encode()).decode() == estimate_json(GPT2)
    worker.stop()


def test_remembered_answers_are_bounded() -> None:
    import asyncio

    from peakmem.web.pool import Answers

    class Pool:
        async def answer(self, question: bytes) -> bytes:
            return question * 10

    async def run() -> Answers:
        answers = Answers(Pool(), 10_000)  # type: ignore[arg-type]
        for i in range(1000):
            question = b"%d" % i
            assert await answers.to(question) == question * 10
        assert await answers.to(b"x" * 1000) == b"x" * 10_000
        return answers

    found = asyncio.run(run())
    kept = sum(len(question) + len(answer) for question, answer in found.kept.items())
    assert kept == 10_000 - found.room <= 10_000 and b"999" in found.kept and b"0" not in found.kept and not found.coming


# The command

def started(*words: str, **options: Any) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen([sys.executable, "-m", "peakmem", "serve", "--port", "0", *words], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)
    assert process.stdout
    line = process.stdout.readline()
    return process, re.search(r":(\d+)/", line)[1] if ":" in line else ""  # type: ignore[index]


def children(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "--ppid", str(pid), "-o", "pid="], capture_output=True, text=True).stdout
    return [int(word) for word in listed.split()]


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_is_left(how: signal.Signals) -> None:
    process, port = started()
    assert alive(int(port)) and ask(int(port), GPT2).status == 200
    workers = children(process.pid)
    assert len(workers) >= 2
    process.send_signal(how)
    out, err = process.communicate(timeout=20)
    assert err == "" and (how != signal.SIGINT or process.returncode == 0)
    for _ in range(50):
        if not any(Path(f"/proc/{pid}").exists() for pid in workers):
            return
        time.sleep(0.1)
    raise AssertionError("a worker is left")


def test_only_this_machine_unless_it_is_said() -> None:
    process, port = started()
    with pytest.raises(OSError):
        socket.create_connection(("127.0.0.2", int(port)), timeout=2)
    process.terminate()
    process.communicate(timeout=20)
    process, port = started("--host", "0.0.0.0")
    assert alive(int(port))
    process.terminate()
    assert process.communicate(timeout=20)[1] == "peakmem: warning: other machines can reach 0.0.0.0; there is no password\n"


def test_a_port_that_is_taken(port: int) -> None:
    found = subprocess.run([sys.executable, "-m", "peakmem", "serve", "--port", str(port)], capture_output=True, text=True)
    assert found.returncode == 2 and found.stderr == (
        f"peakmem: --host '127.0.0.1' --port {port}: Address already in use\n")
    for wrong in (["--port", "x"], ["--port", "70000"], ["--host", "no.such.host.invalid"], ["--host", "a" * 300], ["x"]):
        found = subprocess.run([sys.executable, "-m", "peakmem", "serve", *wrong], capture_output=True, text=True)
        assert found.returncode == 2 and found.stderr.count("\n") == 1 and "Traceback" not in found.stderr


def test_modules_in_the_folder_are_not_imported(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('imported')")
    source = Path(__file__).parent.parent.parent / "src"
    code = "import sys; sys.path.pop(0); from peakmem.web.worker import Worker; print(Worker().ask(b'{}')[:9])"
    found = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True,
                           env=os.environ | {"PYTHONPATH": str(source)})
    assert found.stdout == "b'{\"ledger\"'\n", found.stderr
