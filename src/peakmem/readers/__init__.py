"""Files -> `Model`. Nothing in a file is executed, and no file is read beyond a limit."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from peakmem.errors import printable
from peakmem.model import Model
from peakmem.readers.hf_config import from_config
from peakmem.readers.json_file import read_json

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_model"]


def read_model(path: str | Path) -> Model:
    """A model from a config.json, from a folder that holds one, or from standard input ("-").

    Errors: Unreadable when the file is no such thing, UnknownName for an unknown architecture, Impossible when its
    sizes contradict each other. Each is one line that names file, field and limit.
    """
    config = read_json(path)
    return from_config(config, called(path), printable(str(path))[1:-1])


def called(path: str | Path) -> str:
    """What to call a model that was read from here: the file's name, or its folder's for a config.json."""
    if str(path) == "-":
        return "standard input"
    folder, file = os.path.split(os.fspath(path))
    name = os.path.splitext(file)[0]
    if name == "config" or os.path.isdir(path):
        name = os.path.basename(os.path.realpath(folder if name == "config" else path)) or "model"
    return printable(name, 60)[1:-1]
