"""The server: what it answers, its bounds, and the command."""

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

pytest.importorskip("starlette", reason="the server's tests need the extra: pip install -e '.[serve]'")

from peakmem.web.answer import estimate_json
from peakmem.web.page import files
from peakmem.web.worker import Worker
from tests.web.server import GPT2, HEAD, Patient, ask, get, running


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
    for found in (get(port, "/"), get(port, "/nothing"), ask(port, GPT2), ask(port, GPT2, origin="http://a.example")):
        assert "default-src 'none'" in found.headers["content-security-policy"]
        assert "unsafe" not in found.headers["content-security-policy"]
        assert found.headers["x-content-type-options"] == "nosniff"
        assert not [name for name in found.headers if name.startswith("access-control") or name == "server"]


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
    first = Patient()
    engines = Worker(now=False), Worker(now=False), Worker(), first
    with running(engines=engines, wait=60) as port, ThreadPoolExecutor(4) as threads:
        long = [threads.submit(ask, port, slow(layers)) for layers in range(30, 34)]
        assert first.asked.wait(20)
        assert ask(port, '{"model":"gpt2","allocator":false}').status == 200
        assert not any(one.done() for one in long)
        first.go.set()
        assert [one.result().status for one in long] == [200] * 4


def test_waiting_has_an_end() -> None:
    engines = Patient(), Patient()
    with running(engines=engines, wait=0.3) as port, ThreadPoolExecutor(1) as thread:
        first = thread.submit(ask, port, slow(40))
        assert engines[1].asked.wait(20)
        start = time.monotonic()
        found = ask(port, slow(41))
        assert found.status == 503 and "retry-after" in found.headers and time.monotonic() - start < 3
        engines[1].go.set()
        assert first.result().status == 200


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
        async def answer(self, question: bytes, address: str) -> bytes:
            return question * 10

    async def run() -> Answers:
        answers = Answers(Pool(), 10_000)  # type: ignore[arg-type]
        for i in range(1000):
            question = b"%d" % i
            assert await answers.to(question) == question * 10
        assert await answers.to(b"x" * 1000) == b"x" * 10_000
        return answers

    with ThreadPoolExecutor(1) as thread:  # the browser's tests have an event loop open in this one
        found = thread.submit(asyncio.run, run()).result()
    kept = sum(len(question) + len(answer) for question, answer in found.kept.items())
    assert kept == 10_000 - found.room <= 10_000 and not found.coming
    assert b"999" in found.kept and b"0" not in found.kept


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
    get(int(port), "/")
    workers = children(process.pid)
    assert workers
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
    assert process.communicate(timeout=20)[1] == (
        "peakmem: warning: other machines can reach 0.0.0.0; there is no password\n")


def test_a_port_that_is_taken(port: int) -> None:
    serve = [sys.executable, "-m", "peakmem", "serve"]
    found = subprocess.run([*serve, "--port", str(port)], capture_output=True, text=True)
    assert found.returncode == 2 and found.stderr == (
        f"peakmem: --host '127.0.0.1' --port {port}: Address already in use\n")
    for wrong in ("--port x", "--port 70000", "--host no.such.host.invalid", f"--host {'a' * 300}", "x"):
        found = subprocess.run([*serve, *wrong.split()], capture_output=True, text=True)
        assert found.returncode == 2 and found.stderr.count("\n") == 1 and "Traceback" not in found.stderr


def test_modules_in_the_folder_are_not_imported(tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('imported')")
    source = Path(__file__).parent.parent.parent / "src"
    code = "import sys; sys.path.pop(0); from peakmem.web.worker import Worker; print(Worker().ask(b'{}')[:9])"
    found = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True,
                           env=os.environ | {"PYTHONPATH": str(source)})
    assert found.stdout == "b'{\"ledger\"'\n", found.stderr
