"""Ask the command line inside this process, or in one of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import peakmem
from peakmem.cli import main

SOURCE = Path(peakmem.__file__).parents[1]


class Answer(NamedTuple):
    """What a command said."""

    code: int
    out: str
    err: str


class Ask:
    """`ask("estimate", "gpt2")`; what stands in `stdin` is standard input."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self.capsys = capsys

    def __call__(self, *words: str) -> Answer:
        self.capsys.readouterr()
        code = main(words)
        out, err = self.capsys.readouterr()
        return Answer(code, out, err)

    def mistake(self, *words: str) -> str:
        """The one line that a mistake is told in."""
        answer = self(*words)
        assert answer.code == 2, answer
        assert answer.out == ""
        assert answer.err.startswith("peakmem: ") and answer.err.count("\n") == 1
        assert answer.err.rstrip().replace("…", "").isascii()
        return answer.err.removeprefix("peakmem: ").rstrip()


def process(*words: str, stdin: bytes = b"", **environment: str) -> subprocess.CompletedProcess[bytes]:
    """The same in a process of its own."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG", "PYTHON"))}
    return subprocess.run([sys.executable, "-m", "peakmem", *words], input=stdin, capture_output=True, check=False,
                          env={**clean, "PYTHONPATH": str(SOURCE), **environment}, timeout=120)
