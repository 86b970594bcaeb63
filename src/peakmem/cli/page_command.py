"""`peakmem page`."""

from __future__ import annotations

from peakmem.cli.output import say
from peakmem.cli.parser import Parser
from peakmem.errors import printable


def parser() -> Parser:
    """Where it is written to."""
    made = Parser(prog="peakmem page", usage="peakmem page --out FILE.html|FOLDER/ [--pyodide FOLDER]",
                  description="The page as files: one HTML file that opens from disk, or a folder for any host of\n"
                  "static files. Without Pyodide it holds answers made beforehand, and says so.")
    made.add_argument("--out", required=True, metavar="FILE.html|FOLDER/", help="where to write")
    made.add_argument("--pyodide", metavar="FOLDER", help="npm's pyodide, for instance node_modules/pyodide: then the "
                      "page runs any configuration by itself")
    return made


def run(words: list[str]) -> int:
    """Write, and say what was written."""
    given = parser().read(words)
    from peakmem.web.page import build

    written = build(given.out, given.pyodide)
    size = sum(path.stat().st_size for path in written)
    what = "written" if len(written) == 1 else f"{len(written)} files are written"
    say(f"{what} to {printable(given.out)[1:-1]}: {size:,} bytes, "
        f"{'live: it runs any configuration' if given.pyodide else 'with answers made beforehand'}\n")
    return 0
