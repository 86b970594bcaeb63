"""Tracing in a process of its own.

The fake GPU reaches into torch's private memory, and what is traced may be anybody's code, with threads that outlive
it: neither is something to do to the caller's process.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
import time
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from peakmem.errors import PeakmemError

T = TypeVar("T")
_to_caller: list[Connection] = []  # in a worker: where its answers go


class TraceError(PeakmemError):
    """A trace failed; the message names the operation or says how the process ended."""


class Worker:
    """A fresh process that runs functions one after another, with torch loaded once.

    Use it as a context manager. Functions, arguments and results must be picklable.
    """

    def __enter__(self) -> Worker:
        context = multiprocessing.get_context("spawn")
        self._here, there = context.Pipe()
        self._process = context.Process(target=_serve, args=(there,), daemon=True)
        self._process.start()
        there.close()
        return self

    def __exit__(self, *error: object) -> None:
        self._here.close()
        self._process.join(timeout=10)
        if self._process.is_alive():
            self._process.kill()

    def call(
        self,
        function: Callable[..., T],
        *args: Any,
        timeout: float = 0,
        progress: Callable[[str], None] | None = None,
        **kwargs: Any,
    ) -> T:
        """Return ``function(*args, **kwargs)`` from the worker.

        `timeout`: seconds after which the worker is ended, 0 for none. `progress` is called with what the worker says
        of its work, from the second second on. Raises what the function raised, with its traceback in the notes, or
        `TraceError` if the process died or took too long.
        """
        start = time.monotonic()
        said = ""
        try:
            self._here.send((function, args, kwargs))
            while True:
                spent = time.monotonic() - start
                if timeout and spent >= timeout:
                    self._process.kill()
                    where = f" at: {said}" if said else ""
                    raise TraceError(f"no answer within {timeout:g} seconds{where}; --timeout gives more")
                if not self._here.poll(min(0.2, timeout - spent) if timeout else 0.2):
                    continue
                answer = self._here.recv()
                if not isinstance(answer, str):
                    result, error, trail = answer
                    break
                said = answer
                if progress is not None and time.monotonic() - start > 1:
                    progress(said)
        except (EOFError, ConnectionError):
            self._process.join(timeout=10)
            code = self._process.exitcode
            raise TraceError(f"the tracing process ended without an answer (exit code {code})") from None
        if error is not None:
            error.add_note(trail)
            raise error
        return result  # type: ignore[no-any-return]


def report(text: str) -> None:
    """Say what is being done, if this is a worker."""
    if _to_caller:
        _to_caller[0].send(text)


def in_process(
    function: Callable[..., T],
    *args: Any,
    timeout: float = 0,
    progress: Callable[[str], None] | None = None,
    **kwargs: Any,
) -> T:
    """Return ``function(*args, **kwargs)`` from a process that lives only for this call; see `Worker.call`."""
    with Worker() as worker:
        return worker.call(function, *args, timeout=timeout, progress=progress, **kwargs)


def _serve(channel: Connection) -> None:
    _to_caller.append(channel)
    # What traced code prints must not stand between the caller's own lines.
    os.dup2(2, 1)
    while True:
        try:
            function, args, kwargs = channel.recv()
        except EOFError:
            break
        try:
            answer: tuple[Any, BaseException | None, str] = (function(*args, **kwargs), None, "")
        except BaseException as error:
            answer = (None, _sendable(error), traceback.format_exc())
        channel.send(answer)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _sendable(error: BaseException) -> BaseException:
    if not isinstance(error, Exception):
        return TraceError(f"the traced code ended its process: {type(error).__name__} {error}")
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return TraceError(f"{type(error).__name__}: {error}")
    return error
