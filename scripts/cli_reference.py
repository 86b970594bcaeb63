"""docs/cli.md from the parsers. `--write` writes it, without it the text is printed; a test compares."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path

from peakmem.cli.parser import COMMANDS

TARGET = Path(__file__).resolve().parent.parent / "docs" / "cli.md"
HEAD = """# The command line

```
peakmem COMMAND … [--FIELD VALUE] …
```

What every command has in common:

- MODEL is a preset (`peakmem list models`), `custom`, a config.json, a folder that holds one, or `-`, standard input.
- A setting is a flag, `--batch 2`, or `--set batch=2`. Switches take yes or no: `--clip`, `--clip no`, `--no-clip`.
- Ledgers are files: what `estimate --json` wrote is read by `explain` and `compare`.
- Sizes are in GiB, 2³⁰ bytes, and say so. Colours come only on a terminal, and not with `NO_COLOR` or `TERM=dumb`;
  a letter says the same.
- Exit codes: 0 done; 1 the answer is no: it does not fit (`--fail-over`), the two differ (`compare`), no batch fits
  (`fit`); 2 a mistake, told in one line on standard error.
- `peakmem --print-completion bash` prints completion for a shell (bash, zsh, tcsh); it needs
  `pip install -e '.[completion]'`.

This page is made by `scripts/cli_reference.py` from the parsers; a test compares them.
"""


def reference() -> str:
    """The whole page."""
    parts = [HEAD]
    settings: list[str] = []
    for name in COMMANDS:
        parser = import_module(f"peakmem.cli.{name}_command").parser()
        parts.append(f"\n## {name}\n\n```\n{parser.usage}\n```\n\n{' '.join(parser.description.split())}\n\n")
        own = [group for group in parser._action_groups if not shared(group)]
        parts.append(table(row for group in own for row in rows(group)))
        common = [group for group in parser._action_groups if shared(group)]
        if common:
            parts.append("\nAnd all [settings](#settings) and [dimensions of the model](#dimensions-of-the-model).\n")
        if common and not settings:
            for group in common:
                title = (group.title or "").replace("settings: ", "settings, ")
                settings.append(f"\n{'##' if title == 'settings' or 'dimensions' in title else '###'} "
                                f"{title[0].upper()}{title[1:]}\n\n{table(rows(group))}")
    return "".join(parts + settings)


def shared(group: argparse._ArgumentGroup) -> bool:
    """Whether every command that takes a model has this group."""
    return (group.title or "").startswith(("settings", "dimensions"))


def rows(group: argparse._ArgumentGroup) -> list[tuple[str, str]]:
    """Flag and meaning of what one can write."""
    found = []
    for action in group._group_actions:
        if isinstance(action, argparse._HelpAction):
            continue
        name = action.option_strings[-1] if action.option_strings else ""
        words = f"{name} {action.metavar}" if name and action.nargs != 0 else name or str(action.metavar)
        found.append((words, " ".join((action.help or "").replace("%%", "%").split())))
    return found


def table(found: object) -> str:
    """A table in Markdown."""
    lines = ["| | |", "|---|---|"]
    for words, text in found:  # type: ignore[attr-defined]
        lines.append(f"| `{words}` | {text.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    if "--write" in sys.argv:
        TARGET.write_text(reference(), encoding="utf-8")
    else:
        print(reference(), end="")
