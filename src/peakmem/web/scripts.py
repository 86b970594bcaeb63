"""What lies in assets/, and the page's scripts as they ship: lines of comment and indentation stay in the source."""

from __future__ import annotations

from importlib.resources import files


def asset(name: str) -> str:
    """A file as it was written."""
    return (files("peakmem.web") / "assets" / name).read_text(encoding="utf-8")


def scripts() -> list[str]:
    """Names of the modules, in alphabetical order; the worker's is none of the page's."""
    names = [entry.name for entry in (files("peakmem.web") / "assets").iterdir() if entry.name.endswith(".js")]
    return sorted(name for name in names if name != "worker.js")


def shipped(name: str) -> str:
    """A module as server, folder and single file have it."""
    return bare(asset(name))


def bare(text: str) -> str:
    """A module without lines that are all comment, empty lines and indentation.

    A line that may begin within a template literal, after an odd number of backticks, stays as it is.
    """
    kept = []
    quoted = comment = False
    for line in text.splitlines():
        short = line.strip()
        if quoted:
            kept.append(line)
        elif comment or (short.startswith("/*") and short.find("*/") in (-1, len(short) - 2)):
            _, end, short = short.partition("*/")
            comment = not end
            if short.strip():  # code where the comment ends
                kept.append(short.strip())
        elif short.startswith("//"):
            short = ""
        elif short:
            kept.append(short)
        quoted ^= short.count("`") % 2 == 1
    return "".join(f"{line}\n" for line in kept)
