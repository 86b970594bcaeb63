"""Files that are no configuration, for the tests of what readers refuse."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from peakmem.errors import PeakmemError, Unreadable
from peakmem.readers import read_model

GOOD: dict[str, Any] = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32,
                        "intermediate_size": 11008, "vocab_size": 32000,
                        "tie_word_embeddings": False}


def refused(path: Path, kind: type[PeakmemError] = Unreadable) -> str:
    """The message, after checking that it is one printable line and came at once."""
    start = time.perf_counter()
    with pytest.raises(kind) as error:
        read_model(path)
    text = str(error.value)
    assert time.perf_counter() - start < 2
    assert "\n" not in text and text.isprintable() and len(text) < 500
    return text


def written(tmp_path: Path, content: bytes | str | dict[str, Any]) -> Path:
    """A config.json with this content."""
    path = tmp_path / "config.json"
    text = json.dumps(content) if isinstance(content, dict) else content
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    return path
