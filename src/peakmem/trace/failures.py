"""An error of traced code in one line: what, in which module and operation, and where in the user's file.

Nothing here loads torch.
"""

from __future__ import annotations

import os
import sys
from types import FrameType
from typing import Any

from peakmem.errors import printable

_PLACE, _OPERATION = "_peakmem_module", "_peakmem_operation"


def mark(error: BaseException, operation: str = "", module: str | None = None) -> None:
    """Remember the innermost operation and module that an error left; those that it has stay."""
    for name, value in ((_OPERATION, operation or None), (_PLACE, module)):
        if value is not None and name not in getattr(error, "__dict__", {}):
            try:
                setattr(error, name, value)
            except Exception:
                return


def words(error: BaseException) -> str:
    """Return an error's own message; empty where it can make none."""
    try:
        return str(error)
    except Exception:
        return ""


def said(error: BaseException) -> str:
    """Return kind and message of an error of somebody's code in one line."""
    lines = words(error).strip().splitlines() or [""]
    text = lines[-1] if lines[0].endswith(":") else lines[0]  # chains of failed imports end with their cause
    return f"{type(error).__name__}: {printable(text, 300)}" if text else type(error).__name__


def where(error: BaseException, file: str) -> str:
    """Return operation, module and line of the user's code that an error came from, as far as they are known."""
    found = getattr(error, "__dict__", {})
    operation, module = found.get(_OPERATION, ""), found.get(_PLACE)
    parts = [operation] if operation else []
    if module is not None:
        parts.append(f"in {module}" if module else "in the root module")
    line = line_of(error, file)
    return ", ".join(part for part in (" ".join(parts), line) if part)


def line_of(error: BaseException, file: str) -> str:
    """Return the innermost line of the user's code, ``FILE.py:LINE``; empty if the error did not pass it."""
    trail = error.__traceback__
    found = ""
    while trail is not None:
        if is_own(trail.tb_frame.f_code.co_filename, file):
            found = f"{shown(trail.tb_frame.f_code.co_filename)}:{trail.tb_lineno}"
        trail = trail.tb_next
    return found


def line_now(file: str, frame: FrameType | None = None) -> str:
    """Return the innermost line of the user's code that runs; empty if there is none."""
    each: Any = frame or sys._getframe()
    while each is not None:
        if is_own(each.f_code.co_filename, file):
            return f"{shown(each.f_code.co_filename)}:{each.f_lineno}"
        each = each.f_back
    return ""


def is_own(path: str, file: str) -> bool:
    """Whether a file of code is the user's, or lies beside it."""
    folder = os.path.dirname(os.path.abspath(file))
    inside = os.path.abspath(path).startswith(os.path.join(folder, ""))
    return inside and not any(part in path for part in ("site-packages", "dist-packages", f"{os.sep}peakmem{os.sep}",
                                                        "<"))


def shown(path: str) -> str:
    """A file's name as it may stand in a message."""
    return printable(os.path.basename(path))[1:-1]
