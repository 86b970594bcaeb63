"""The command line: which command, one call for it, and one line for whatever goes wrong.

Exit codes: 0 done; 1 the answer is no; 2 a mistake of the user's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from peakmem.errors import PeakmemError, UnknownName, printable

INTERRUPTED, NOBODY_READS = 130, 141  # what a shell reports for SIGINT and SIGPIPE


def command() -> NoReturn:
    """What the shell runs: `main`, then the end without tearing down, which would take a tenth of the time."""
    import gc

    gc.disable()  # one question makes few cycles, and then the process ends
    code = main()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        code = code or NOBODY_READS
    os._exit(code)


def main(words: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    words = list(sys.argv[1:] if words is None else words)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by whoever started us; a file opened later would take its number
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    try:
        if hasattr(sys.stdin, "reconfigure"):
            sys.stdin.reconfigure(errors="surrogateescape")  # whether it is text says whoever reads it
    except ValueError:  # somebody in this process has read from it before
        pass
    try:
        code = run(words)
        sys.stdout.flush()
        return code
    except PeakmemError as error:
        return failed(str(error))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Python flushes standard output once more at its end, and would complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return NOBODY_READS
    except OSError as error:
        return failed(f"{printable(error.filename) + ': ' if error.filename else ''}{error.strerror or error}")
    except (MemoryError, RecursionError):
        return failed("this machine's memory does not suffice for the question")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0


def run(words: list[str]) -> int:
    """Find the command and hand it the rest."""
    from peakmem.cli.parser import COMMANDS

    first = words[0] if words else ""
    if first in COMMANDS:
        from importlib import import_module

        module = import_module(f"peakmem.cli.{first}_command")
        code = module.run(words[1:])
        return int(code)
    from peakmem.cli import top

    if not first or first in ("-h", "--help", "help", "-V", "--version") or first.startswith("--print-completion"):
        return top.run(words)
    if first.startswith("-"):
        raise PeakmemError(f"{printable(first)} comes after a command: {', '.join(COMMANDS)}. See: peakmem --help")
    raise UnknownName("command", first, COMMANDS)


def failed(message: str) -> int:
    """One line on standard error."""
    line = " ".join(message.split())
    print(f"peakmem: {line}".encode("ascii", "backslashreplace").decode() if not _utf8() else f"peakmem: {line}",
          file=sys.stderr)
    return 2


def _utf8() -> bool:
    return (getattr(sys.stderr, "encoding", "") or "").lower().replace("-", "") == "utf8"
