"""Files whose names a user gives. Only regular ones are opened: reading or writing a FIFO waits for ever, a device has
no end. And JSON objects of which nobody knows what they say."""

from __future__ import annotations

import os
import stat
from typing import IO, TYPE_CHECKING, Any

from peakmem.errors import Unreadable, printable

if TYPE_CHECKING:
    from pathlib import Path

STREAMS = ("/dev/fd/", "/proc/self/fd/", "/dev/stdin")
"""What a shell has opened already: `<(command)`."""


def is_stream(path: str | Path) -> bool:
    """Whether a name stands for what is open already."""
    return str(path).startswith(STREAMS)


def opened(path: str | Path, streams: bool = False, most: int = 0) -> IO[bytes]:
    """A regular file, to be read. streams: or what a shell has opened; most: the largest size in bytes, 0: any.

    Errors: Unreadable for anything else; a FIFO or a device is not even opened.
    """
    name = printable(str(path))
    try:
        if streams and is_stream(path):
            return os.fdopen(os.open(path, os.O_RDONLY), "rb")
        check(os.stat(path), name)
        # What the name stands for may change between stat and open: O_NONBLOCK cannot hang on a FIFO.
        file = os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)), "rb")
    except Unreadable:
        raise
    except (OSError, ValueError) as error:
        raise Unreadable(f"{name} cannot be read: {reason(error)}") from None
    try:
        found = os.fstat(file.fileno())
        check(found, name)
        if most and found.st_size > most:
            raise Unreadable(f"{name} has {found.st_size:,} bytes; the limit is {most:,}")
    except Unreadable:
        file.close()
        raise
    return file


def read(path: str | Path, most: int, streams: bool = False) -> bytes:
    """What is in a regular file, and never more than one byte beyond `most`. Errors: Unreadable."""
    with opened(path, streams) as file:
        try:
            return file.read(most + 1)
        except OSError as error:
            raise Unreadable(f"{printable(str(path))} cannot be read: {reason(error)}") from None


def check(found: os.stat_result, name: str) -> None:
    """Errors: Unreadable for what is no regular file."""
    if not stat.S_ISREG(found.st_mode):
        what = "a folder" if stat.S_ISDIR(found.st_mode) else "no regular file"
        raise Unreadable(f"{name} is {what}; give a regular file")


def writable(path: str | Path) -> None:
    """Whether a file may be written there. Errors: Unreadable where something stands that is no regular file."""
    try:
        check(os.stat(path), printable(str(path)))
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        if isinstance(error, Unreadable):
            raise
        raise Unreadable(f"{printable(str(path))} cannot be written: {reason(error)}") from None


def reason(error: Exception) -> str:
    """What the system says, as it may stand in a message."""
    return printable(getattr(error, "strerror", None) or str(error))[1:-1]


class Twice(ValueError):
    """A key that an object has twice: some readers take the first value, others the last."""


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """`object_pairs_hook` of json. Errors: Twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise Twice(f"{printable(twice)} twice in one object; give it once")
    return found
