"""Files -> `Model`. Nothing in a file is executed, and no file is read beyond a limit."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from peakmem.errors import printable
from peakmem.model import Model
from peakmem.readers.hf_config import from_config
from peakmem.readers.json_file import read_json

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["read_model"]


def read_model(path: str | Path) -> Model:
    """A model from a config.json, from a folder that holds one, or from standard input ("-").

    A weights file stands for the config.json beside it; `hf://owner/name` is fetched from the hub.
    Errors: Unreadable when the file is no such thing, UnknownName for an unknown architecture, Impossible when its
    sizes contradict each other. Each is one line that names file, field and limit.
    """
    word = str(path)
    if word.startswith("hf://"):
        from peakmem.readers.hub import folder_of

        folder = folder_of(word)
        return from_config(with_sidecar(read_json(folder), folder), printable(word[5:], 60)[1:-1], "config.json")
    if word.endswith((".safetensors", ".gguf")) or word != "-" and os.path.isdir(path):
        from peakmem.readers.weights import model_beside

        return model_beside(path)
    config = with_sidecar(read_json(path), os.path.dirname(os.fspath(path)) if word != "-" else "")
    return from_config(config, called(path), "standard input" if word == "-" else printable(word)[1:-1])


def with_sidecar(config: Any, folder: str) -> Any:
    """The configuration with what hf_quant_config.json beside it says, where it says nothing of that itself."""
    path = os.path.join(folder, "hf_quant_config.json")
    if not folder or not isinstance(config, dict) or config.get("quantization_config") or not os.path.isfile(path):
        return config
    return {**config, "quantization_config": read_json(path)}


def called(path: str | Path) -> str:
    """What to call a model that was read from here: the file's name, or its folder's for a config.json."""
    if str(path) == "-":
        return "standard input"
    folder, file = os.path.split(os.fspath(path))
    name = os.path.splitext(file)[0]
    if name == "config" or os.path.isdir(path):
        name = os.path.basename(os.path.realpath(folder if name == "config" else path)) or "model"
    return printable(name, 60)[1:-1]
