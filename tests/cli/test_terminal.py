"""Colours: on a terminal that has them, and nowhere else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .asking import SOURCE, process

pty = pytest.importorskip("pty")


def on_a_terminal(*words: str, **environment: str) -> str:
    """What a command prints on a terminal of 80 columns."""
    leader, follower = pty.openpty()
    env = {**os.environ, "PYTHONPATH": str(SOURCE), "TERM": "xterm-256color", "COLUMNS": "80", **environment}
    env = {name: value for name, value in env.items() if value != "-"}
    run = subprocess.Popen([sys.executable, "-m", "peakmem", *words], stdout=follower, stderr=follower, env=env)
    os.close(follower)
    parts = []
    while True:
        try:
            part = os.read(leader, 65536)
        except OSError:
            break
        if not part:
            break
        parts.append(part)
    os.close(leader)
    run.wait(60)
    return b"".join(parts).decode().replace("\r\n", "\n")


WORDS = ("estimate", "gpt2", "--gpu", "1GiB")
PLAIN = {"NO_COLOR": "-", "FORCE_COLOR": "-"}


def test_colours_on_a_terminal_and_the_same_words() -> None:
    pytest.importorskip("rich")
    import re

    shown = on_a_terminal(*WORDS, **PLAIN)
    assert "\x1b[" in shown
    bare = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    piped = process(*WORDS).stdout.decode()
    lines = [line.rstrip() for line in bare.splitlines()]
    assert lines[: len(piped.splitlines())] == piped.splitlines()
    # The answer has scrolled away on a terminal of 24 rows, and is said again.
    assert lines[len(piped.splitlines()) + 1 :] == piped.splitlines()[:2]


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb", "NO_COLOR": "-"}],
                         ids=["NO_COLOR", "dumb"])
def test_no_colours_where_nobody_wants_them(environment: dict[str, str]) -> None:
    assert "\x1b" not in on_a_terminal(*WORDS, **environment)


def test_no_colours_in_a_pipe(tmp_path: Path) -> None:
    assert b"\x1b" not in process(*WORDS, TERM="xterm-256color").stdout
