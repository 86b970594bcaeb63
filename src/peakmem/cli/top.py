"""`peakmem` without a command: help, version, completion for a shell."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module

from peakmem.cli.output import say
from peakmem.cli.parser import COMMANDS
from peakmem.errors import Missing, UnknownName
from peakmem.version import __version__

SHELLS = ("bash", "zsh", "tcsh")
TEXT = """usage: peakmem COMMAND …

Where the memory of a neural-network training step goes, to the byte, before you rent the GPU.

{commands}

examples:
  peakmem estimate llama-3.1-8b --sequence 4096 --gpu H100
  peakmem fit config.json --gpu "RTX 4090" --precision bf16 --lora-rank 16
  peakmem explain llama-3.1-8b down_proj

`peakmem COMMAND --help` has the flags. --version; --print-completion {shells}.
Exit codes: 0 done; 1 the answer is no; 2 a mistake, told in one line.
"""


def run(words: list[str]) -> int:
    """Help, version, completion. Errors: Missing, UnknownName for a shell."""
    first = words[0] if words else ""
    if first in ("-V", "--version"):
        say(f"peakmem {__version__}\n")
        return 0
    if first.startswith("--print-completion"):
        shell = first.partition("=")[2] or (words[1] if len(words) > 1 else "")
        if shell not in SHELLS:
            raise UnknownName("shell", shell, SHELLS)
        say(completion(shell))
        return 0
    listed = "\n".join(f"  {name:<9} {what}" for name, what in COMMANDS.items())
    text = TEXT.format(commands=listed, shells="|".join(SHELLS))
    if first:
        say(text)
        return 0
    print(text.encode(sys.stderr.encoding or "ascii", "replace").decode(sys.stderr.encoding or "ascii"),
          end="", file=sys.stderr)
    return 2


def completion(shell: str) -> str:
    """A completion script. Errors: Missing."""
    try:
        import shtab
    except ImportError:
        raise Missing("completion needs shtab", "completion") from None
    return str(shtab.complete(whole(), shell)) + "\n"


def whole() -> argparse.ArgumentParser:
    """The parsers of all commands as one."""
    parser = argparse.ArgumentParser(prog="peakmem", allow_abbrev=False)
    parser.add_argument("--version", action="store_true", help="the version")
    parser.add_argument("--print-completion", choices=SHELLS, help="a completion script for a shell")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, what in COMMANDS.items():
        built = import_module(f"peakmem.cli.{name}_command").parser()
        commands.add_parser(name, parents=[built], add_help=False, help=what, description=built.description)
    return parser
