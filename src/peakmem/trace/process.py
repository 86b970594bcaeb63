"""Tracing in a process of its own.

The fake GPU reaches into torch's private memory, and what is traced may be anybody's code, with threads that outlive
it: neither is something to do to the caller's process.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any, TypeVar

from peakmem.errors import PeakmemError, printable

from .failures import said, words

T = TypeVar("T")
LOADING = "loading"  # how news begin while the worker is busy with itself, not with what is traced
_LOADED_WITHIN = 300  # seconds
_PLACE = "place: "
_to_caller: list[Connection] = []  # in a worker: where its answers go
_places: list[Callable[[FrameType | None], str]] = []  # in a worker: what says where the traced code is


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
        with _uninterrupted(), _sets_in_one_order():
            self._process.start()
        there.close()
        return self

    def __exit__(self, kind: object, *error: object) -> None:
        if kind is KeyboardInterrupt:
            self._process.kill()
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

        `timeout`: seconds of the traced code after which the worker is ended, 0 for none. `progress` is called with
        what the worker says of its work, from the second second on.

        Raises what the function raised, with its traceback in the notes, or `TraceError` if the process died or took
        too long.
        """
        began = start = time.monotonic()
        news = ""
        try:
            self._here.send((function, args, kwargs))
            while True:
                spent, loading = time.monotonic() - start, news.startswith(LOADING)
                limit = max(timeout, _LOADED_WITHIN) if timeout and loading else timeout
                if limit and spent >= limit:
                    at = ", ".join(part for part in (news, "" if loading else self._place()) if part)
                    self._process.kill()
                    raise TraceError(f"no answer within {limit:g} seconds{at and f' at: {at}'}; --timeout gives more")
                if not self._here.poll(min(0.2, limit - spent) if limit else 0.2):
                    continue
                answer = self._here.recv()
                if not isinstance(answer, str):
                    result, error, trail = answer
                    break
                if loading and not answer.startswith(LOADING):
                    start = time.monotonic()
                news = answer
                if progress is not None and time.monotonic() - began > 1:
                    progress(news)
        except (EOFError, ConnectionError):
            self._process.join(timeout=10)
            code = self._process.exitcode
            raise TraceError(f"the tracing process ended without an answer (exit code {code})") from None
        if error is not None:
            error.add_note(trail)
            raise error
        return result  # type: ignore[no-any-return]


    def _place(self) -> str:
        """Ask the worker where the traced code is; empty if it doesn't say."""
        pid = self._process.pid
        if pid is None or not hasattr(signal, "SIGUSR1"):
            return ""
        os.kill(pid, signal.SIGUSR1)
        until = time.monotonic() + 1
        while self._here.poll(max(0.0, until - time.monotonic())):
            answer = self._here.recv()
            if isinstance(answer, str) and answer.startswith(_PLACE):
                return answer.removeprefix(_PLACE)
            if not isinstance(answer, str):
                break
        return ""


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Let a process that is started ignore Ctrl-C from its first instruction on: its caller ends it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _sets_in_one_order() -> Iterator[None]:
    """Let words have the same hashes in every process that is started, unless the caller says otherwise.

    Some models of transformers make their masks in the order of a set of words, which differs from run to run.
    """
    given = os.environ.get("PYTHONHASHSEED")
    os.environ["PYTHONHASHSEED"] = given or "0"
    try:
        yield
    finally:
        if given is None:
            del os.environ["PYTHONHASHSEED"]


def report(text: str) -> None:
    """Say what is being done, if this is a worker."""
    if _to_caller:
        _send(_to_caller[0], text)


def _send(channel: Connection, answer: object) -> None:
    try:
        channel.send(answer)
    except OSError:  # the caller is gone
        os._exit(1)


@contextmanager
def placed(place: Callable[[FrameType | None], str]) -> Iterator[None]:
    """While the context lasts, answer the caller's question where the traced code is with `place`, given its frame."""
    _places.append(place)
    try:
        yield
    finally:
        _places.remove(place)


def _say_place(number: int, frame: FrameType | None) -> None:
    report(_PLACE + (_places[-1](frame) if _places else ""))


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
    if hasattr(signal, "SIGUSR1"):
        signal.signal(signal.SIGUSR1, _say_place)
    # What traced code prints must not stand between the caller's own lines.
    os.dup2(2, 1)
    while True:
        try:
            function, args, kwargs = channel.recv()
        except (EOFError, OSError):
            break
        try:
            answer: tuple[Any, BaseException | None, str] = (function(*args, **kwargs), None, "")
        except BaseException as error:
            answer = (None, _sendable(error), traceback.format_exc())
        _send(channel, answer)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _sendable(error: BaseException) -> BaseException:
    if not isinstance(error, Exception):
        given = error.code if isinstance(error, SystemExit) else words(error)
        text = "" if given in (None, "") else f" {printable(given, 300)}"
        return TraceError(f"the traced code ended its process: {type(error).__name__}{text}")
    try:
        str(error)
        pickle.loads(pickle.dumps(error))
    except Exception:
        return TraceError(said(error))
    return error
