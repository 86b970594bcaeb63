"""Tracing FILE.py:FUNCTION in a process of its own. Nothing here loads torch or the file: the process does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from peakmem.errors import PeakmemError, printable
from peakmem.files import opened
from peakmem.ledger import Ledger
from peakmem.ledger_json import from_json

from .process import in_process, report

_LARGEST = 16 * 2**20  # bytes of a file that somebody wrote


def parts(place: str) -> tuple[str, str]:
    """Return file and function of FILE.py:FUNCTION. Raises `PeakmemError` if it is none, or the file no regular one."""
    file, _, name = place.rpartition(":")
    if not file or not name.isidentifier():
        raise PeakmemError(f"{printable(place)}: write FILE.py:FUNCTION")
    opened(file, most=_LARGEST).close()
    return file, name


def trace_function(
    place: str,
    gpu: str = "",
    timeout: float = 0,
    progress: Callable[[str], None] | None = None,
    **step: Any,
) -> Ledger:
    """Return the ledger of the step that ``FILE.py:FUNCTION`` describes; `step`: see `settings.of_own_file`.

    The function returns (module, inputs[, optimizer[, loss]]) or a `Training`. Runs in a process of its own, for
    `timeout` seconds at most (0: for ever). Raises `Unreadable` for a file or function that is not there, `TraceError`
    where a step can't be followed.
    """
    file, name = parts(place)
    return from_json(in_process(_as_json, file, name, gpu, step, timeout=timeout, progress=progress))


def _as_json(file: str, name: str, gpu: str, options: Mapping[str, Any]) -> dict[str, Any]:
    report("loading torch")
    from .user import as_json

    return as_json(file, name, gpu, options)
