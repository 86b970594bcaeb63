"""Compare text with a file. PEAKMEM_GOLD=1 writes the file anew; look at the difference before you commit it."""

from __future__ import annotations

import os
from pathlib import Path

GOLD = Path(__file__).parent / "gold"


def check(name: str, text: str) -> None:
    """Fail when the file `name` says something else."""
    path = GOLD / name
    if os.environ.get("PEAKMEM_GOLD"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"{name} differs; PEAKMEM_GOLD=1 writes it anew"
