"""JSON from files that nobody has looked at: bounded in bytes, depth and digits; only regular files are opened."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

from peakmem.errors import Unreadable, printable
from peakmem.files import Twice, once, opened

if TYPE_CHECKING:
    from pathlib import Path

MOST_BYTES = 4 * 2**20
"""Largest file that is parsed. Real config.json files are below 1 MiB; parsed JSON can be 25 times its file, and
nothing here may need 200 MB."""
MOST_DIGITS = 400  # of one number; Python's int() takes quadratic time


class NotFinite(float):
    """NaN, Infinity or a number beyond every float, as it stood in the file: an error only where it is used."""

    text: str

    @classmethod
    def of(cls, text: str) -> NotFinite:
        """The value of one literal that is not finite."""
        value = cls(text)
        value.text = text[:20]
        return value


def read_json(path: str | Path, file_in_folder: str = "config.json") -> Any:
    """The value in a JSON file; of a folder, in its config.json; of "-", on standard input.

    UTF-8 with or without BOM, UTF-16 and UTF-32, as `json` detects them. Errors: Unreadable, in one line.
    """
    if str(path) == "-":
        name, raw = "standard input", sys.stdin.buffer.read(MOST_BYTES + 1)
    else:
        name, raw = read_bytes(path, file_in_folder)
    return parse(raw, name)


def read_bytes(path: str | Path, file_in_folder: str = "") -> tuple[str, bytes]:
    """Printable name and content of a regular file of at most `MOST_BYTES` bytes, never more than its limit.

    Errors: Unreadable for anything else; a FIFO or a device is not even opened.
    """
    if file_in_folder and os.path.isdir(path):
        folder, path = path, os.path.join(path, file_in_folder)
        if not os.path.lexists(path):
            raise Unreadable(f"{printable(str(folder))} has no {file_in_folder}; give a {file_in_folder}, or a folder "
                             "that holds one")
    with opened(path, most=MOST_BYTES) as file:
        return printable(str(path)), file.read(MOST_BYTES + 1)


def parse(raw: bytes, name: str) -> Any:
    """JSON text as Python values. Errors: Unreadable with the place; also for a key that an object has twice."""
    if len(raw) > MOST_BYTES:
        raise Unreadable(f"{name} has more than {MOST_BYTES:,} bytes")
    if not raw.strip():
        raise Unreadable(f"{name} is empty")
    encoding = json.detect_encoding(raw)
    try:
        text = raw.decode(encoding)
        return json.loads(text, parse_int=_whole, parse_float=_fraction, parse_constant=NotFinite.of,
                          object_pairs_hook=once)
    except Twice as error:
        raise Unreadable(f"{name} has {error}") from None
    except UnicodeDecodeError as error:
        raise Unreadable(f"{name} is not {encoding.upper()} text: byte {error.start:,}") from None
    except json.JSONDecodeError as error:
        raise Unreadable(f"{name} is not JSON: {error.msg}, line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise Unreadable(f"{name} is nested too deeply") from None
    except _TooLong as error:
        raise Unreadable(f"{name} has a number of {error} digits; the limit is {MOST_DIGITS}") from None


class _TooLong(ValueError):
    """A number that nobody means."""


def _whole(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise _TooLong(f"{len(text):,}")
    return int(text)


def _fraction(text: str) -> float:
    if len(text) > MOST_DIGITS:
        raise _TooLong(f"{len(text):,}")
    value = float(text)
    return NotFinite.of(text) if value in (float("inf"), float("-inf")) else value
