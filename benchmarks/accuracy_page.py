"""Write the table of docs/accuracy.md anew: python benchmarks/accuracy_page.py."""

from __future__ import annotations

import re
from pathlib import Path

from peakmem.plan.accuracy import accuracy
from peakmem.views.accuracy import page
from peakmem.views.layout import plain

PAGE = Path(__file__).parent.parent / "docs" / "accuracy.md"

if __name__ == "__main__":
    table = plain(page(accuracy(), 80))
    place = re.compile(r"```text\n.*?```", re.DOTALL)
    text, count = place.subn(lambda _: f"```text\n{table}```", PAGE.read_text(), count=1)
    assert count == 1, "the page has no place for the table"
    PAGE.write_text(text)
