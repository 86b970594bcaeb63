"""A cold start loads little: counted in modules, since seconds depend on the machine."""

from __future__ import annotations

import pytest

from .asking import process

NEVER = {"rich", "numpy", "torch", "matplotlib", "shtab", "asyncio", "email", "http", "logging", "multiprocessing",
         "socket", "ssl", "subprocess", "tempfile", "unittest", "urllib.request", "xml", "concurrent",
         "importlib.metadata",
         "shutil", "shlex", "difflib", "decimal", "fractions", "random", "hashlib", "inspect", "dataclasses", "pathlib",
         "ast", "traceback"}


def loaded(*words: str) -> set[str]:
    """Modules that a command has imported."""
    done = process(*words, PYTHONPROFILEIMPORTTIME="1")
    lines = [line for line in done.stderr.decode().splitlines() if line.startswith("import time:")]
    return {line.rsplit("|", 1)[1].strip() for line in lines[1:]}


@pytest.mark.parametrize(("words", "most"), [
    (("estimate", "llama-3.1-8b", "--json"), 170),
    (("--version",), 140),
    (("list", "gpus"), 150),
])
def test_few_modules(words: tuple[str, ...], most: int) -> None:
    found = loaded(*words)
    assert found & NEVER == set()
    assert len(found) <= most, sorted(found)


def test_a_pipe_never_meets_rich() -> None:
    assert "rich" not in loaded("estimate", "gpt2", "--gpu", "1GiB")
