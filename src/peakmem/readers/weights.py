"""A folder, or a weights file with or without a config.json beside it."""

from __future__ import annotations

import os
from pathlib import Path

from peakmem.errors import PeakmemError, Unreadable, printable
from peakmem.immutable import replace
from peakmem.model import Model
from peakmem.readers.gguf import read_gguf
from peakmem.readers.safetensors import INDEX, claimed_bytes, read_safetensors
from peakmem.readers.tensors import Found

WHOLE = {"BF16", "F16", "F32", "F64"}
"""Dtypes in which one element is one parameter."""


def model_beside(path: str | Path) -> Model:
    """The model that the config.json of the folder describes, with what the weights beside it hold as a note.

    Errors: Unreadable and UnknownName; where only the weights can be read, their count stands in the message.
    """
    from peakmem.readers import called, with_sidecar
    from peakmem.readers.hf_config import from_config
    from peakmem.readers.json_file import read_json

    is_folder = os.path.isdir(path)
    folder = os.fspath(path) if is_folder else os.path.dirname(os.fspath(path)) or "."
    config = os.path.join(folder, "config.json")
    found = None if is_folder and not has_weights(folder) else read_weights(path)
    if not os.path.exists(config):
        if found is None:
            return from_config(read_json(path))  # which says that there is no config.json
        raise Unreadable(f"{found.file}: weights of {found.words()}{described(found)}; what else memory holds is not "
                         "known without a config.json beside them")
    try:
        model = from_config(with_sidecar(read_json(config), folder), called(folder), printable(config)[1:-1])
    except PeakmemError as error:
        if found is None:
            raise
        text = f"{str(error)[:500].rstrip('.')}. Weights alone: {found.words()} in {found.file}"
        raise Unreadable(text) from None
    if found is None:
        return model
    claimed = claimed_bytes(folder) if is_folder else None
    unit = "byte" if claimed == 1 else "bytes"
    other = f"; its index says {printable(claimed, 24)} {unit}" if claimed not in (None, found.bytes) else ""
    whole = found.by_dtype.keys() <= WHOLE and not model.stored
    return replace(model, notes=(*model.notes, f"the file's weights: {found.words()}{other}"),
                   in_file=found.elements if whole else 0)


def has_weights(folder: str) -> bool:
    """Whether there is something to count: an index, or any .safetensors file."""
    try:
        return os.path.isfile(os.path.join(folder, INDEX)) or any(
            entry.name.endswith(".safetensors") for entry in os.scandir(folder))
    except OSError:
        return False


def read_weights(path: str | Path) -> Found:
    """The tensors of a weights file, or of a folder. Errors: Unreadable."""
    return read_gguf(path) if str(path).endswith(".gguf") else read_safetensors(path)


def described(found: Found) -> str:
    return f", architecture {printable(found.architecture, 40)}" if found.architecture else ""
