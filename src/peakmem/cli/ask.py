"""From words on the command line to a model, a ledger."""

from __future__ import annotations

import argparse
import io
import os
import stat
import sys
from typing import Any

from peakmem.errors import Unreadable, printable
from peakmem.ledger import Ledger
from peakmem.model import Model

HEAD = 256
"""Characters in which a ledger says that it is one."""
MARK = '"peakmem.ledger/'


def model_of(word: str, sizes: dict[str, Any]) -> Model:
    """MODEL as the command line has it: `custom`, a preset, a file, a folder, `-`; resized.

    Errors: UnknownName, Unreadable, Impossible.
    """
    from peakmem.tables.models import custom, find_model
    from peakmem.tables.resize import resize

    if word == "custom":
        if not sizes:
            return custom()
        own = {name: sizes[name] for name in ("layers", "hidden", "heads", "vocabulary", "positions") if name in sizes}
        tied = {"tied": resize(custom(), tied=sizes["tied"]).tied} if "tied" in sizes else {}
        rest = {name: value for name, value in sizes.items() if name not in own and name != "tied"}
        model = custom(**own, **tied)
        return resize(model, **rest) if rest else model
    model = Model.read(word) if is_path(word) else find_model(word)
    return resize(model, **sizes) if sizes else model


def is_path(word: str) -> bool:
    """Whether a word means a file. The name of a preset does, too, where it is written as a path: `./gpt2`."""
    if word == "-" or word.startswith((".", "/", "~")) or word.endswith((".json", ".safetensors", ".gguf")):
        return True
    try:
        return os.path.exists(word) and ("/" in word or not _preset(word))
    except ValueError:  # a name with a zero byte
        return False


def _preset(word: str) -> bool:
    from peakmem.tables.models import presets

    return word in presets()


def estimated(given: argparse.Namespace) -> Ledger:
    """The estimate for MODEL and its settings."""
    from peakmem.cli.parser import settings_of
    from peakmem.estimate import estimate

    settings, sizes = settings_of(given)
    return estimate(model_of(given.model, sizes), **settings)


def is_ledger(word: str) -> bool:
    """Whether a file, or what comes on standard input, says that it is a ledger."""
    if word == "-":
        text = sys.stdin.read()
        sys.stdin = Again(text)
        return MARK in text[:HEAD]
    if word.startswith(("/dev/fd/", "/proc/self/fd/")):
        return True
    try:
        if not stat.S_ISREG(os.stat(word).st_mode):
            return False
        with open(word, encoding="utf-8", errors="replace") as file:
            return MARK in file.read(HEAD)
    except (OSError, ValueError):
        return False


class Again(io.TextIOWrapper):
    """Standard input, to be read once more."""

    def __init__(self, text: str) -> None:
        raw = io.BytesIO(text.encode("utf-8", "surrogateescape"))
        super().__init__(raw, encoding="utf-8", errors="surrogateescape")


def read_ledger(word: str) -> Ledger:
    """A ledger from a file or standard input. Errors: Unreadable."""
    if word != "-" and os.path.isdir(word):
        raise Unreadable(f"{printable(word)} is a folder, not a ledger")
    return Ledger.read(word)
