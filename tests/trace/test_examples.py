"""The examples print what their page says, but for versions."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("console", ROOT / "scripts" / "console.py")
assert SPEC and SPEC.loader
console = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(console)

PAGES = (ROOT / "examples" / "trace" / "README.md", ROOT / "docs" / "trace.md")
BLOCK = re.compile(r"^```text\n(.*?)^```$", re.M | re.S)
TEXT = "".join(page.read_text("utf-8") for page in PAGES)
SHOWN = [found for block in BLOCK.findall(TEXT) for found in console.commands(block)]


@pytest.mark.parametrize(("command", "shown"), SHOWN, ids=[command for command, _ in SHOWN])
def test_a_trace_prints_what_the_page_says(command: str, shown: list[str]) -> None:
    printed = [line for line in console.output(command) if not line.startswith("peakmem: ")]
    assert console.agrees(shown, printed), "\n".join(printed)
