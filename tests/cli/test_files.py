"""Whatever may stand under the name of a file: each command says in one line that it is none, and never waits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .asking import SOURCE, Ask, process

READERS = [("accuracy", "--file", "{}"), ("compare", "{}", "gpt2"), ("compare", "gpt2", "{}"), ("explain", "{}"),
           ("diagnose", "{}"), ("diagnose", "{}", "gpt2"), ("estimate", "{}"), ("fit", "{}", "--gpu", "T4"),
           ("trace", "{}"), ("trace", "{}.py:step"), ("estimate", "{}.gguf"), ("estimate", "{}.safetensors")]
KINDS = ("fifo", "loop", "socket-less device", "dangling")


def made(place: Path, kind: str) -> None:
    """Something that is no regular file."""
    if kind == "fifo":
        os.mkfifo(place)
    else:
        place.symlink_to({"loop": place.name, "dangling": "nowhere"}.get(kind, "/dev/zero"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("words", READERS, ids=" ".join)
def test_what_is_no_file_is_not_opened(ask: Ask, tmp_path: Path, words: tuple[str, ...], kind: str,
                                       monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("odd", "odd.py", "odd.gguf", "odd.safetensors"):
        made(tmp_path / name, kind)
    opened = os.open

    def never(path: object, *rest: int, **named: int) -> int:
        assert "odd" not in str(path) or kind in ("loop", "dangling"), path
        return opened(path, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", never)
    said = ask.mistake(*(word.format("odd") for word in words))
    assert "odd" in said and ("no regular file" in said or "symbolic links" in said or "No such file" in said), said


@pytest.mark.parametrize("words", [("accuracy", "--file", "{}"), ("diagnose", "{}")], ids=" ".join)
def test_a_folder_is_told(ask: Ask, tmp_path: Path, words: tuple[str, ...]) -> None:
    assert "is a folder" in ask.mistake(*(word.format(tmp_path) for word in words))


def test_a_folder_without_a_configuration(ask: Ask, tmp_path: Path) -> None:
    for command in ("estimate", "trace", "explain"):
        assert "has no config.json; give a config.json, or a folder that holds one" in ask.mistake(
            command, str(tmp_path))


def test_a_pipe_where_a_picture_or_the_page_should_be(ask: Ask, tmp_path: Path,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peakmem.web.page.files", lambda mode: {"index.html": b""})
    for name, words in (("a.svg", ("estimate", "gpt2", "--plot")), ("a.html", ("page", "--out"))):
        os.mkfifo(tmp_path / name)
        assert "no regular file" in ask.mistake(*words, str(tmp_path / name))
    os.mkfifo(tmp_path / "index.html")
    assert "no regular file" in ask.mistake("page", "--out", str(tmp_path))


def test_what_a_shell_opened_is_read(ask: Ask, tmp_path: Path) -> None:
    (tmp_path / "ledger.json").write_text(ask("estimate", "gpt2", "--sequence", "64", "--json").out)
    with open(tmp_path / "ledger.json", "rb") as file:
        done = subprocess.run([sys.executable, "-m", "peakmem", "compare", "/dev/fd/0", "gpt2 --sequence 64"],
                              stdin=file, env={**os.environ, "PYTHONPATH": str(SOURCE)}, check=False, timeout=120)
    assert done.returncode == 0


def test_standard_input_that_is_no_text() -> None:
    for words in (("diagnose", "-"), ("explain", "-"), ("compare", "-", "gpt2")):
        done = process(*words, stdin=b"\xff\xfe\x00junk", LC_ALL="C.UTF-8")
        assert done.returncode == 2 and done.stderr.count(b"\n") == 1 and b"Traceback" not in done.stderr
