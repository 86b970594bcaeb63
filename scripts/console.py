"""Commands in the documentation, with what they print.

A block of kind `console` has lines `$ peakmem …`, each followed by its output; a line `…` stands for any lines.
`python scripts/console.py` compares, with `--write` it puts the present output in, as many lines as stood there.
Commands run in the repository's folder, on Python alone: no shell, but `; echo $?` shows the exit code.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

from peakmem.cli import main as peakmem

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.M | re.S)
REST, CODE = "…", "; echo $?"


def pages() -> list[Path]:
    """Every page that may have such blocks."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    return sorted(page for page in found if "_build" not in page.parts)


def commands(block: str) -> Iterator[tuple[str, list[str]]]:
    """Each command of a block with the lines that are printed below it."""
    command, shown = "", []
    for line in block.splitlines():
        if line.startswith("$ "):
            if command:
                yield command, shown
            command, shown = line[2:], []
        else:
            shown.append(line)
    if command:
        yield command, shown


def output(command: str) -> list[str]:
    """What a command prints. A mistake's one line comes, too, as on a terminal."""
    asked, code = command.removesuffix(CODE), command.endswith(CODE)
    program, *words = shlex.split(asked)
    if program != "peakmem":
        raise ValueError(f"only peakmem is run: {command}")
    text, folder = io.StringIO(), Path.cwd()
    os.chdir(ROOT)
    try:
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
            end = peakmem(words)
    finally:
        os.chdir(folder)
    return [*text.getvalue().splitlines(), *([str(end)] if code else [])]


def agrees(shown: list[str], printed: list[str]) -> bool:
    """Whether lines with gaps are those lines."""
    if REST not in shown:
        return shown == printed
    at = shown.index(REST)
    head, rest = shown[:at], shown[at + 1 :]
    if printed[:at] != head:
        return False
    return any(agrees(rest, printed[start:]) for start in range(at, len(printed) + 1))


def anew(shown: list[str], printed: list[str]) -> list[str]:
    """The present output, cut as it was.

    As many lines as stood before the first gap and after the last; between two gaps as many as stood there, from the
    line that begins as their first one did.
    """
    if REST not in shown:
        return printed
    parts: list[list[str]] = [[]]
    for line in shown:
        if line == REST:
            parts.append([])
        else:
            parts[-1].append(line)
    made = [*printed[: len(parts[0])], REST]
    for part in parts[1:-1]:
        at = next((i for i, line in enumerate(printed) if part and line[:16] == part[0][:16]), None)
        if at is not None:
            made += [*printed[at : at + len(part)], REST]
    return [*made, *(printed[-len(parts[-1]) :] if parts[-1] else [])]


def main() -> int:
    """Compare all pages, or write them. Exit code 1 when one says something else."""
    bad = count = 0
    for page in pages():
        text = page.read_text(encoding="utf-8")

        made = text
        for match in BLOCK.finditer(text):
            lines = []
            for command, shown in commands(match[1]):
                printed = output(command)
                count += 1
                if not agrees(shown, printed):
                    bad += 1
                    print(f"{page.relative_to(ROOT)}: $ {command}", file=sys.stderr)
                    shown = anew(shown, printed)
                lines += [f"$ {command}", *shown]
            made = made.replace(match[0], "```console\n" + "\n".join(lines) + "\n```")
        if "--write" in sys.argv and made != text:
            page.write_text(made, encoding="utf-8")
    print(f"{count - bad} of {count} commands print what the pages say")
    return 1 if bad and "--write" not in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
