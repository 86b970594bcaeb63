"""What an out-of-memory message means, in lines."""

from __future__ import annotations

from peakmem.answers import Diagnosis
from peakmem.views.layout import Line, heading, wrapped
from peakmem.views.words import clean


def page(found: Diagnosis, width: int = 80) -> list[Line]:
    """The message, what it means, what to do."""
    lines = wrapped(clean(found.asked), width)
    lines += heading("What it means")
    for one in found.findings:
        lines += wrapped(clean(one.text), width, "- ", "  ")
    if found.advice:
        lines += heading("What to do")
        for text in found.advice:
            lines += wrapped(clean(text), width, "- ", "  ")
    if found.gpus:
        lines += [[], *wrapped(f"GPUs of this capacity: {', '.join(found.gpus)}", width, style="dim")]
    return lines
