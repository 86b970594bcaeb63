"""`peakmem diagnose`."""

from __future__ import annotations

import json
import sys

from peakmem.cli.ask import model_of
from peakmem.cli.estimate_command import MODEL_HELP
from peakmem.cli.output import say, show
from peakmem.cli.parser import Parser, Usage, add_settings, settings_of
from peakmem.errors import Unreadable
from peakmem.files import read


def parser() -> Parser:
    """A log, and what ran."""
    made = Parser(prog="peakmem diagnose", usage="peakmem diagnose LOG [MODEL] [--FIELD VALUE]… [--json]",
                  description="What PyTorch's out-of-memory message means: what was full, of what, and which tensor of "
                  "MODEL was asked for.")
    made.add_argument("log", metavar="LOG", help="a file that holds the message, with its traceback if it is there; - "
                      "is standard input")
    made.add_argument("model", metavar="MODEL", nargs="?", default=None,
                      help=f"what ran: {MODEL_HELP}; none: the message by itself")
    made.add_argument("--json", action="store_true", help="the answer as JSON")
    add_settings(made)
    return made


def run(words: list[str]) -> int:
    """Read the log, then say what it means."""
    given = parser().read(words)
    settings, sizes = settings_of(given)
    if given.model is None and (sizes or settings.keys() - {"gpu"}):
        raise Usage("settings say what ran: give its MODEL, too. See: peakmem diagnose --help")
    from peakmem.plan.diagnose import as_json, diagnose_run

    if given.log == given.model == "-":
        raise Usage("standard input is LOG or MODEL, not both")
    found = diagnose_run(log(given.log), model_of(given.model, sizes) if given.model else None, settings)
    if given.json:
        say(json.dumps(as_json(found), allow_nan=False, indent=1) + "\n")
    else:
        from peakmem.views.diagnosis import page

        show(lambda width: page(found, width))
    return 0


def log(name: str) -> str:
    """The text of a log. Errors: Unreadable."""
    from peakmem.measured.out_of_memory import MOST

    if name == "-":
        return sys.stdin.read(MOST + 1)
    try:
        return read(name, 4 * MOST, streams=True).decode("utf-8", "replace")
    except Unreadable as error:
        told = str(error).partition("; give ")[0]
        raise Unreadable(f"{told}; give a file with the message, or -") from None
