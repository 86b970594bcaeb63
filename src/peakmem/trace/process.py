"""Tracing in a process of its own.

The fake GPU reaches into torch's private memory and leaves an autograd thread behind that may abort an ordinary exit:
neither is something to do to the caller's process.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, TypeVar

from peakmem.errors import PeakmemError

T = TypeVar("T")


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

    def call(self, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        """Return ``function(*args, **kwargs)`` from the worker.

        Raises what the function raised, with its traceback in the notes, or `TraceError` if the process died.
        """
        try:
            self._here.send((function, args, kwargs))
            result, error, trail = self._here.recv()
        except (EOFError, ConnectionError):
            self._process.join(timeout=10)
            code = self._process.exitcode
            raise TraceError(f"the tracing process ended without an answer (exit code {code})") from None
        if error is not None:
            error.add_note(trail)
            raise error
        return result  # type: ignore[no-any-return]


def in_process(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Return ``function(*args, **kwargs)`` from a process that lives only for this call."""
    with Worker() as worker:
        return worker.call(function, *args, **kwargs)


def _serve(channel: Connection) -> None:
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
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return TraceError(f"{type(error).__name__}: {error}")
    return error
