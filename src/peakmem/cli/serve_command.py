"""`peakmem serve`."""

from __future__ import annotations

from peakmem.cli.parser import Parser
from peakmem.errors import install


def parser() -> Parser:
    """Where it listens."""
    made = Parser(prog="peakmem serve", usage="peakmem serve [--host HOST] [--port N] [--open]",
                  description="The page, and its question over HTTP, on this machine. Ctrl-C ends it.\n"
                  f"Needs {install('serve')}.")
    made.add_argument("--host", default="127.0.0.1", metavar="HOST",
                      help="who can reach it: 127.0.0.1, this machine alone (default); 0.0.0.0, everybody, without a "
                      "password; or a name of this machine")
    made.add_argument("--port", default="8000", metavar="N", help="0: any that is free (default: 8000)")
    made.add_argument("--open", action="store_true", help="show it in the browser")
    return made


def run(words: list[str]) -> int:
    """Serve until Ctrl-C."""
    given = parser().read(words)
    from peakmem.setup import number
    from peakmem.web.listen import serve

    port = number("--port", given.port, int, 0, 65_535)
    try:
        serve(given.host, port, given.open)
    except KeyboardInterrupt:
        pass
    return 0
