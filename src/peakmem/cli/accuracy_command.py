"""`peakmem accuracy`."""

from __future__ import annotations

import json

from peakmem.cli.output import say, show
from peakmem.cli.parser import Parser


def parser() -> Parser:
    """The table to compare with."""
    made = Parser(prog="peakmem accuracy", usage="peakmem accuracy [--file CSV] [--json]",
                  description="Published, measured runs against our estimates.\n"
                  "Exit code 1 when a threshold is missed.")
    made.add_argument("--file", metavar="CSV", help="another table with the columns of peakmem's measured/runs.csv")
    made.add_argument("--json", action="store_true", help="rows, errors, thresholds and reasons as JSON")
    return made


def run(words: list[str]) -> int:
    """Estimate every row, then say how far off each is."""
    given = parser().read(words)
    from peakmem.plan.accuracy import accuracy
    from peakmem.views.accuracy import as_json, page

    found = accuracy(given.file)
    if given.json:
        say(json.dumps(as_json(found), allow_nan=False, indent=1) + "\n")
    else:
        show(lambda width: page(found, width))
    return 0 if found.met else 1
