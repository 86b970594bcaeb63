"""The engine in a process of its own, for the server: it can be stopped, and its memory has an end.

A question goes in and an answer comes out, each as four bytes of length and UTF-8 text. An empty question asks for the
files of the page.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO

MEMORY = 2**30
"""Address space of one worker, where the system counts it; a request of 1 MiB becomes 50 MiB of Python."""
RECYCLE = 400 * 2**20
"""A worker that has once held so much is replaced when it has answered."""


class Gone(Exception):
    """The worker ended before it answered."""


class Worker:
    """One process. Its methods block; only `wake` and `stop` may be called from another thread."""

    def __init__(self, now: bool = True) -> None:
        self.process = started() if now else None
        self.starting = threading.Lock()

    def wake(self) -> subprocess.Popen[bytes]:
        """The process, started where it is not there."""
        with self.starting:
            if self.process is None or self.process.poll() is not None:
                self.process = started()
            return self.process

    def ask(self, question: bytes) -> bytes:
        """Errors: Gone."""
        while True:
            process = self.wake()
            assert process.stdin and process.stdout
            try:
                send(process.stdin, question)
                answer = receive(process.stdout)
            except (OSError, ValueError):
                answer = None
            if answer is not None:
                return answer
            if process.wait() != 0:  # 0: it went after its last answer, to be replaced
                raise Gone

    def stop(self) -> None:
        """End it, whatever it does."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def started() -> subprocess.Popen[bytes]:
    """A process that reads questions until its standard input ends."""
    source = str(Path(__file__).parent.parent.parent)
    before = os.environ.get("PYTHONPATH")
    path = source if not before else source + os.pathsep + before
    # -P: the folder in which the server was started holds no modules of ours. A session of its own: Ctrl-C is for the
    # server, which then closes the pipes.
    return subprocess.Popen([sys.executable, "-P", "-m", "peakmem.web.worker"], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": path}, start_new_session=True)


def send(pipe: IO[bytes], text: bytes) -> None:
    pipe.write(len(text).to_bytes(4, "big") + text)
    pipe.flush()


def receive(pipe: IO[bytes]) -> bytes | None:
    """None where the other side has ended."""
    head = pipe.read(4)
    size = int.from_bytes(head, "big")
    text = pipe.read(size)
    return text if len(head) == 4 and len(text) == size else None


def answered(question: bytes) -> str:
    """What the engine says; bytes that are no UTF-8 are a mistake like any other."""
    from peakmem.web.answer import estimate_json

    if not question:
        import json

        from peakmem.web.page import files

        return json.dumps({name: content.decode() for name, content in files("served").items()})
    try:
        text = question.decode("utf-8")
    except UnicodeDecodeError:
        text = "\ud800"  # no UTF-8 text either
    return estimate_json(text)


def main() -> None:
    """Answer until there is nothing more to read."""
    questions, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what anything prints by mistake must not stand between the answers
    most = bounded()
    answered(b'{"model":"gpt2"}')  # imports the engine before somebody waits for it
    while (question := receive(questions)) is not None:
        send(answers, answered(question).encode())
        if most() > RECYCLE:
            return


def bounded() -> Callable[[], int]:
    """Set the limit of memory. Returns a function that says how many bytes were held at most; 0 where nobody knows."""
    try:
        import resource
    except ImportError:  # Windows
        return lambda: 0
    try:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    except (ValueError, OSError):  # a stricter limit is set already, or the system has none
        pass
    unit = 1 if sys.platform == "darwin" else 1024
    return lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


if __name__ == "__main__":
    main()
