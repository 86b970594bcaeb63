"""`peakmem compare`."""

from __future__ import annotations

from peakmem.cli.ask import estimated
from peakmem.cli.ledgers import is_ledger, read_ledger
from peakmem.cli.output import show
from peakmem.cli.parser import Parser
from peakmem.errors import Impossible, printable
from peakmem.ledger import Ledger

HELP = ('a ledger that --json wrote, - (standard input), or a MODEL with its settings in quotes: '
        '"llama-3.1-8b --batch 2"')


def parser() -> Parser:
    """A and B."""
    made = Parser(prog="peakmem compare", usage="peakmem compare A B",
                  description="Two ledgers side by side: by phase, then kind, then line.\n"
                  "Exit code 1 when they differ.")
    made.add_argument("a", metavar="A", help=HELP)
    made.add_argument("b", metavar="B", help="the same")
    return made


def run(words: list[str]) -> int:
    """Print what differs; 1 when anything does."""
    given = parser().read(words)
    if given.a == given.b == "-":
        raise Impossible("only one of A and B can be standard input")
    left, right = ledger_of(given.a), ledger_of(given.b)
    from peakmem.views.compare import compared, page

    show(lambda width: page(left, right, (given.a, given.b), width))
    return 0 if compared(left, right).equal else 1


def ledger_of(word: str) -> Ledger:
    """A ledger as it is given: a file, or a question in quotes. Errors: PeakmemError."""
    if is_ledger(word):
        return read_ledger(word)
    import shlex

    from peakmem.cli.estimate_command import parser as estimate_parser

    try:
        words = shlex.split(word)
    except ValueError as error:
        raise Impossible(f"{printable(word)}: {error}") from None
    if not words:
        raise Impossible("A and B are a ledger each, or a MODEL with its settings in quotes; one is empty")
    return estimated(estimate_parser().read(words))
