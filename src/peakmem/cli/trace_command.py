"""`peakmem trace`."""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from peakmem.cli.ask import is_path
from peakmem.cli.estimate_command import write_json
from peakmem.cli.parser import Parser, add_settings, settings_of
from peakmem.errors import Impossible, Missing, PeakmemError, install, printable
from peakmem.ledger import Ledger

MODEL_HELP = ("FILE.py:FUNCTION, which returns (module, inputs[, optimizer[, loss]]): the file is run; or a MODEL as "
              "in estimate: a preset, `custom`, a config.json, a folder that holds one, or -")
NEEDS = "trace needs PyTorch and transformers"


def parser() -> Parser:
    """What is traced, every setting, and how the answer is wanted."""
    made = Parser(prog="peakmem trace", usage="peakmem trace FILE.py:FUNCTION | MODEL [--FIELD VALUE]… [--gpu GPU]\n"
                  "         [--json | --plot FILE] [--timeline] [--timeout SECONDS]",
                  description="One training step of a real PyTorch module and optimizer, on a GPU that is not there:\n"
                  "every allocation, to the byte. FILE.py is run: trace only code that you trust.\n"
                  f"Needs {install('trace')}.")
    made.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    group = made.add_argument_group("answer")
    how = group.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="the whole ledger as JSON, for explain and compare")
    how.add_argument("--plot", metavar="FILE", help="a picture instead, with live bytes over the step: .png, .svg or "
                     ".pdf")
    group.add_argument("--timeline", action="store_true", help="live bytes after every event, too")
    group.add_argument("--timeout", metavar="SECONDS", default="600", help="give up after that long; 0: never "
                       "(default: 600)")
    add_settings(made)
    return made


def run(words: list[str]) -> int:
    """Trace, and answer in the form that was asked for."""
    from peakmem.setup import number

    given = parser().read(words)
    timeout = float(number("--timeout", given.timeout, float, 0, 10**6, "seconds"))
    if given.plot:
        from peakmem.views.figure import ready

        ready(given.plot)  # before somebody's file is run
    ledger, gpu = traced(given, timeout)
    if given.json:
        write_json(ledger, given.timeline)
        return 0
    room = None
    if gpu:
        from peakmem.plan.headroom import headroom

        room = headroom(ledger, gpu)
    if given.plot:
        from peakmem.cli.output import say
        from peakmem.views.figure import save
        from peakmem.views.layout import plain
        from peakmem.views.text import answer

        save(ledger, given.plot, room, timeline=True)
        say(plain(answer(ledger)) + f"written to {printable(given.plot)[1:-1]}\n")
        return 0
    from peakmem.cli.output import show
    from peakmem.views.text import page

    show(lambda width: page(ledger, room, (), None, width, given.timeline))
    return 0


def traced(given: argparse.Namespace, timeout: float) -> tuple[Ledger, str]:
    """The ledger, and the GPU that was named. Errors: PeakmemError, in one line."""
    settings, sizes = settings_of(given)
    gpu = settings.get("gpu", "")
    own = is_function(given.model)
    question = own_file(given.model, settings, sizes) if own else a_model(given.model, settings, sizes)
    if find_spec("torch") is None or (not own and find_spec("transformers") is None):
        raise Missing(NEEDS, "trace")
    with Progress() as progress:
        try:
            return question(timeout=timeout, progress=progress.say), gpu
        except PeakmemError:
            raise
        except Exception as error:
            from peakmem.trace.failures import said
            from peakmem.trace.process import TraceError

            raise TraceError(said(error)) from None


def is_function(word: str) -> bool:
    """Whether MODEL means a function of somebody's file."""
    file, colon, name = word.rpartition(":")
    there = bool(colon) and name.isidentifier() and Path(file).is_file()
    return there or word.endswith(".py") or bool(colon) and file.endswith(".py")


def own_file(place: str, settings: dict[str, Any], sizes: dict[str, Any]) -> Any:
    """What traces FILE.py:FUNCTION. Errors: PeakmemError."""
    from functools import partial

    from peakmem.tables.gpus import find_gpu
    from peakmem.trace.files import parts, trace_function
    from peakmem.trace.settings import of_own_file

    if sizes:
        raise Impossible(f"--{next(iter(sizes)).replace('_', '-')}: with FILE.py:FUNCTION the file makes the module")
    parts(place)
    if settings.get("gpu"):
        find_gpu(settings["gpu"])
    return partial(trace_function, place, settings.get("gpu", ""), **of_own_file(settings))


def a_model(word: str, settings: dict[str, Any], sizes: dict[str, Any]) -> Any:
    """What traces a model of transformers'. Errors: PeakmemError."""
    from functools import partial

    from peakmem.estimate import notes_on_sequence, usual_sequence
    from peakmem.immutable import replace
    from peakmem.setup import Setup
    from peakmem.trace.configs import read
    from peakmem.trace.models import trace_model
    from peakmem.trace.settings import refuse

    config, model = read(word, is_path(word), sizes)
    setup = Setup.of(**{"sequence": usual_sequence(model, settings)} | settings)
    refuse(setup)
    model = replace(model, notes=(*model.notes, *notes_on_sequence(model, settings)))
    return partial(trace_model, config, model, setup)


class Progress:
    """What is being done, on standard error: on a terminal in one line that changes, else one line each."""

    def __init__(self) -> None:
        self.terminal = sys.stderr.isatty()
        self.shown = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *error: object) -> None:
        if self.terminal and self.shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)

    def say(self, text: str) -> None:
        """Show one piece of news."""
        self.shown = True
        line = f"peakmem: {printable(text)[1:-1]}"
        print(f"\r\x1b[K{line}" if self.terminal else line, end="" if self.terminal else "\n", file=sys.stderr,
              flush=True)
