"""`peakmem explain`."""

from __future__ import annotations

from peakmem.cli.ask import estimated
from peakmem.cli.estimate_command import MODEL_HELP
from peakmem.cli.ledgers import is_ledger, read_ledger
from peakmem.cli.output import show
from peakmem.cli.parser import Parser, add_settings, settings_of
from peakmem.errors import Impossible


def parser() -> Parser:
    """MODEL or a ledger, then a part of a line's name."""
    made = Parser(prog="peakmem explain", usage="peakmem explain MODEL [--FIELD VALUE]… [LINE]",
                  description="The lines behind a number: size, formula, birth, death, reason.")
    made.add_argument("model", metavar="MODEL", help=f"{MODEL_HELP}; or a ledger that --json wrote")
    made.add_argument("line", metavar="LINE", nargs="?", default="",
                      help="part of a name, or a kind: down_proj, loss, weights, \"mlp output\"; none: an overview")
    add_settings(made)
    return made


def run(words: list[str]) -> int:
    """Print the overview, or the lines that match."""
    given = parser().read(words)
    if is_ledger(given.model):
        if any(settings_of(given)):
            raise Impossible("a ledger has its settings: leave the flags out, or give a MODEL instead of a ledger")
        ledger = read_ledger(given.model)
    else:
        ledger = estimated(given)
    from peakmem.views.explain import page

    # An unknown line must be told before anything is printed.
    page(ledger, given.line)
    show(lambda width: page(ledger, given.line, width))
    return 0
