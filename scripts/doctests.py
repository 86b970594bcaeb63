"""Run every `>>>` example in the documentation and in the source. Exit code 1 if one prints something else."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OPTIONS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def main() -> int:
    """Count and run; print the sum."""
    failed = tried = 0
    for page in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]):
        if "_build" in page.parts:
            continue
        text = page.read_text(encoding="utf-8").replace("\n```", "\n\n```")  # else the fence is expected, too
        found = doctest.DocTestParser().get_doctest(text, {}, page.name, str(page), 0)
        result = doctest.DocTestRunner(optionflags=OPTIONS).run(found)
        failed, tried = failed + result.failed, tried + result.attempted
    for module in modules():
        result = doctest.testmod(importlib.import_module(module), optionflags=OPTIONS)
        failed, tried = failed + result.failed, tried + result.attempted
    print(f"{tried - failed} of {tried} documented examples print what they say")
    return 1 if failed else 0


def modules() -> list[str]:
    """Every module of the package that has an example."""
    import peakmem

    found = [info.name for info in pkgutil.walk_packages(peakmem.__path__, "peakmem.")]
    source = ROOT / "src"
    return [name for name in found
            if ">>>" in next(p for p in (source / (name.replace(".", "/") + ".py"),
                                         source / name.replace(".", "/") / "__init__.py") if p.exists()).read_text()]


if __name__ == "__main__":
    sys.exit(main())
