"""The picture in the README: what a terminal shows, as SVG.

Needs rich. The file asks for nothing from anywhere: the reader's own monospace font is used.
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import TerminalTheme

from peakmem.cli.estimate_command import answered, parser
from peakmem.views.terminal import put
from peakmem.views.text import page

TARGET = Path(__file__).resolve().parent.parent / "docs" / "images" / "estimate.svg"
README, UNTIL = ["llama-3.1-8b", "--sequence", "4096", "--gpu", "H100"], "Largest at the peak, and why they are alive"
THEME = TerminalTheme((22, 24, 29), (226, 226, 226), [
    (22, 24, 29), (235, 96, 96), (111, 190, 120), (222, 184, 90), (110, 160, 230), (200, 130, 190), (90, 190, 190),
    (226, 226, 226)])
FRAME = """<svg viewBox="0 0 {terminal_width} {terminal_height}" xmlns="http://www.w3.org/2000/svg" role="img" \
aria-label="what peakmem prints">
<style>.{unique_id}-matrix {{font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; \
font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width}}
{styles}</style>
<defs><clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" \
height="{terminal_height}"/></clipPath>{lines}</defs>
<rect width="100%" height="100%" rx="8" fill="#16181d"/>
<g transform="translate(9, 9)" clip-path="url(#{unique_id}-clip-terminal)">{backgrounds}
<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""


def picture(words: list[str], until: str = "") -> str:
    """SVG of the command's answer, down to a heading."""
    console = Console(record=True, width=82, file=io.StringIO(), force_terminal=True, color_system="truecolor",
                      legacy_windows=False)
    ledger, room, tried, together = answered(parser().read(words))
    lines = page(ledger, room, tried, together)
    texts = ["".join(piece for piece, _ in line) for line in lines]
    end = texts.index(until) if until in texts else len(lines)
    put(console, [[("$ ", "dim"), ("peakmem estimate " + " ".join(words), "strong")], *lines[:end]])
    return console.export_svg(theme=THEME, code_format=FRAME, unique_id="p", font_aspect_ratio=0.61)


def main() -> int:
    """Write the file."""
    TARGET.write_text(picture(README, UNTIL), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
