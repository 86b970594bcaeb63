"""Flags from the field table, and argparse with our errors."""

from __future__ import annotations

import argparse
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NoReturn

from peakmem.errors import Impossible, PeakmemError, UnknownName, nearest, printable
from peakmem.setup import FIELDS
from peakmem.tables.resize import SIZES

VALUE = re.compile(r"-(?!-|h$).")
TRUTH = ("yes", "no", "true", "false", "on", "off", "1", "0")
SWITCHES = frozenset({*(name for name, row in FIELDS.items() if row["type"] is bool), "tied"})
COMMANDS: dict[str, str] = {
    "estimate": "the peak of a training step or of a generation, when it is, and of what",
    "explain": "the lines behind a number: size, formula, birth, death, reason",
    "diagnose": "what an out-of-memory message means, and which tensor was asked for",
    "trace": "a real PyTorch module and optimizer, without a GPU; runs your file",
    "compare": "two ledgers side by side; exit code 1 when they differ",
    "fit": "the largest batch that fits on a GPU",
    "accuracy": "published, measured runs against our estimates",
    "page": "the page as one HTML file or a folder",
    "serve": "the page and its question over HTTP, on this machine",
    "list": "models, gpus, optimizers, precisions, levers",
}
SIZE_HELP = {"tied": "the head is the embedding matrix", "kv_heads": "key/value heads", "layers": "layers",
             "hidden": "hidden size", "heads": "attention heads", "head_size": "size of one head",
             "feed_forward": "feed-forward size", "vocabulary": "vocabulary", "positions": "learned positions",
             "window": "sliding window in tokens", "experts": "experts of a layer"}


class Help(argparse.RawDescriptionHelpFormatter):
    """Help of 80 columns. argparse makes one for every flag that is added, and would ask the terminal each time."""

    def __init__(self, prog: str, **options: Any) -> None:
        super().__init__(prog, **{"width": 79, "max_help_position": 30, **options})


class Usage(PeakmemError):
    """A command line that cannot be understood."""


class Once(argparse._StoreAction):
    """A flag with a value: argparse would silently take the last of two."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any,
                 option_string: str | None = None) -> None:
        seen: dict[str, Any] = vars(namespace).setdefault("seen", {})
        if option_string and seen.setdefault(self.dest, values) != values:
            raise Usage(f"{option_string} is given twice: {printable(seen[self.dest])} and {printable(values)}")
        super().__call__(parser, namespace, values, option_string)


class Parser(argparse.ArgumentParser):
    """argparse whose errors are ours: raised, one line, with the nearest flag."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", Help)
        super().__init__(allow_abbrev=False, **options)
        self.register("action", None, Once)

    def error(self, message: str) -> NoReturn:
        text = message.removeprefix("argument ")
        for long, short in (("expected one argument", "give a value"),
                            ("the following arguments are required", "missing")):
            text = text.replace(long, short)
        raise Usage(f"{text}. See: {self.prog} --help")

    def _print_message(self, message: str, file: Any = None) -> None:
        from peakmem.cli.output import say

        say(message)

    def read(self, words: Sequence[str]) -> argparse.Namespace:
        """The arguments, positional ones wherever they stand. Errors: PeakmemError."""
        valued = {flag for flag, action in self._option_string_actions.items() if action.nargs is None}
        found, left = self.parse_known_intermixed_args(spelled(words, valued))
        for word in left:
            name = word.split("=")[0]
            before = words[words.index(word) - 1] if word in words else ""
            if before.startswith("--") and before[2:].replace("-", "_") in SWITCHES:
                raise Usage(f"{before} takes yes or no: got {printable(word)}. See: {self.prog} --help")
            if not word.startswith("-"):
                raise Usage(f"one argument too many: {printable(word)}. See: {self.prog} --help")
            near = nearest(name, [flag for flag in self._option_string_actions if flag.startswith("--")])
            raise Usage(f"unknown flag {printable(name)}." + (f" Did you mean {near}?" if near else "")
                        + f" See: {self.prog} --help")
        return found


def spelled(words: Sequence[str], valued: Collection[str] = ()) -> list[str]:
    """Switches with their value attached: `--clip` is `--clip=yes`, `--no-clip` and `--clip no` are `--clip=no`; so is
    a value of the flags `valued` that begins with a dash: `--gpu -1GiB` is not a flag `-1GiB`."""
    result: list[str] = []
    rest = iter(range(len(words)))
    for i in rest:
        word = words[i]
        name = word[2:].replace("-", "_") if word.startswith("--") else ""
        if name in SWITCHES:
            given = i + 1 < len(words) and words[i + 1].lower() in TRUTH
            result.append(f"{word}={words[next(rest)]}" if given else f"{word}=yes")
        elif word in valued and i + 1 < len(words) and VALUE.match(words[i + 1]):
            result.append(f"{word}={words[next(rest)]}")
        elif name.startswith("no_") and name[3:] in SWITCHES:
            result.append(f"--{word[5:]}=no")
        else:
            result.append(word)
    return result


def flag(name: str) -> str:
    """`lora_rank` as `--lora-rank`."""
    return "--" + name.replace("_", "-")


def add_settings(parser: argparse.ArgumentParser, without: Iterable[str] = ()) -> None:
    """Every row of the field table as a flag, in its groups; dimensions of the model; --set."""
    groups: dict[str, Any] = {}
    for name, row in FIELDS.items():
        if name in without:
            continue
        title = "settings" if row["group"] == "common" else f"settings: {row['group']}"
        group = groups.get(title) or groups.setdefault(title, parser.add_argument_group(title))
        group.add_argument(flag(name), dest=name, metavar=metavar(row), help=described(row), default=None)
    group = parser.add_argument_group("settings: any of these")
    group.add_argument("--set", dest="sets", metavar="FIELD=VALUE", action="append", default=[],
                       help="a setting or a dimension by its name, as often as wanted")
    group = parser.add_argument_group("dimensions of the model")
    for name in (*SIZES, "tied"):
        group.add_argument(flag(name), dest=name, metavar="{yes,no}" if name == "tied" else "N",
                           help=SIZE_HELP.get(name, name.replace("_", " ")), default=None)


def metavar(row: Any) -> str:
    """What the value of a setting looks like."""
    if row["choices"]:
        return "{" + ",".join(row["choices"]) + "}"
    if row["type"] is bool:
        return "{yes,no}"
    return "A,B,…" if row["many"] else "N" if row["type"] in (int, float) else "NAME"


def described(row: Any) -> str:
    """A setting's help, with unit, range and default."""
    default = row["default"]
    text = ",".join(default) if row["many"] else ("yes" if default else "no") if row["type"] is bool else default
    shown = f" (default: {text})" if text != "" else ""
    return f"{row['help']}{shown}".replace("%", "%%")


def settings_of(given: argparse.Namespace) -> tuple[dict[str, Any], dict[str, Any]]:
    """What was given: settings of the run, and sizes of the model, as text. Errors: UnknownName, Impossible."""
    values = {name: value for name, value in vars(given).items()
              if value is not None and (name in FIELDS or name in SIZES or name == "tied")}
    for text in getattr(given, "sets", []):
        name, equals, value = text.partition("=")
        name = name.strip().removeprefix("--").replace("-", "_")
        if not equals:
            raise Impossible(f"--set {printable(text)}: write FIELD=VALUE")
        if name not in FIELDS and name not in SIZES and name != "tied":
            raise UnknownName("setting", name, [*FIELDS, *SIZES, "tied"], "peakmem estimate --help")
        if values.get(name, value) != value:
            raise Impossible(f"{flag(name)} is given twice: {printable(values[name])} and {printable(value)}")
        values[name] = value
    if values.get("gpu") == "":
        raise Impossible("--gpu is empty; give the name of a GPU (`peakmem list gpus`), or a size such as 24GiB")
    settings = {name: value for name, value in values.items() if name in FIELDS}
    return settings, {name: value for name, value in values.items() if name not in FIELDS}
