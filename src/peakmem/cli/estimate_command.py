"""`peakmem estimate`."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from peakmem.cli.ask import asked
from peakmem.cli.parser import Parser, add_settings
from peakmem.errors import Impossible, printable
from peakmem.ledger import Ledger

if TYPE_CHECKING:
    from peakmem.answers import Change, Headroom

MODEL_HELP = "a preset (`peakmem list models`), `custom`, a config.json, a folder that holds one, a " \
             ".safetensors or .gguf file beside one, hf://owner/name, or - (standard input)"


def parser() -> Parser:
    """MODEL, every setting, and how the answer is wanted."""
    made = Parser(prog="peakmem estimate", usage="peakmem estimate MODEL [--FIELD VALUE]… [--gpu GPU]\n"
                  "         [--json | --plot FILE] [--timeline] [--from-url URL] [--fail-over PERCENT]",
                  description="The peak of a training step or of a generation, when it is, and of what.")
    made.add_argument("model", metavar="MODEL", nargs="?", help=MODEL_HELP)
    group = made.add_argument_group("answer")
    how = group.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="the whole ledger as JSON")
    how.add_argument("--plot", metavar="FILE", help="a picture instead: .png, .svg or .pdf")
    group.add_argument("--timeline", action="store_true", help="live bytes after every event, too")
    group.add_argument("--from-url", metavar="URL", help="what a link of the page says, in place of MODEL; nothing is "
                       "fetched, and flags change it")
    group.add_argument("--fail-over", metavar="PERCENT", help="exit code 1 when more than this share of the GPU is "
                       "needed, 95 or 95%%; 100: when it does not fit")
    add_settings(made)
    return made


def run(words: list[str]) -> int:
    """Answer, in the form that was asked for."""
    given = parser().read(words)
    limit = percent(given)
    ledger, room, tried, together = answered(given)
    if given.json:
        write_json(ledger, given.timeline)
    elif given.plot:
        from peakmem.cli.output import say
        from peakmem.views.figure import save
        from peakmem.views.layout import plain
        from peakmem.views.text import answer

        save(ledger, given.plot, room, given.timeline)
        say(plain(answer(ledger)) + f"written to {printable(given.plot)[1:-1]}\n")
    else:
        from peakmem.cli.output import show
        from peakmem.views.text import page

        show(lambda width: page(ledger, room, tried, together, width, given.timeline))
    if limit is not None and room is None:
        raise Impossible("--fail-over is a share of a GPU, and the link names none: give --gpu, too")
    if limit is None or room is None or not over(room, limit):
        return 0
    print(f"peakmem: {room.percent:.1f} % of {printable(room.gpu)[1:-1]} is needed, more than --fail-over {limit:g}"
          if room.percent > limit else "peakmem: too close to what is sold to say that it fits", file=sys.stderr)
    return 1


def over(room: Headroom, limit: float) -> bool:
    """Whether more than `limit` percent are needed; as sold, the last 5 % are not believed."""
    return room.percent > limit or (room.close and limit <= 100)


def answered(given: argparse.Namespace) -> tuple[Ledger, Headroom | None, tuple[Change, ...], Change | None]:
    """The ledger; with a GPU its room; and, where people will read that it does not fit, what would help."""
    from peakmem.estimate import estimate

    model, settings = asked(given)
    ledger = estimate(model, **settings)
    if not settings.get("gpu"):
        return ledger, None, (), None
    from peakmem.plan.headroom import headroom

    room = headroom(ledger, settings["gpu"])
    if room.fits or given.json or given.plot:
        return ledger, room, (), None
    from peakmem.plan.levers import measure_of, try_levers

    return ledger, room, *try_levers(settings, measure_of(model, settings["gpu"]))


def write_json(ledger: Ledger, timeline: bool) -> None:
    """The ledger on standard output: ASCII, one newline at its end."""
    sys.stdout.write(json.dumps(ledger.as_json(timeline), allow_nan=False, separators=(",", ":")) + "\n")


def percent(given: argparse.Namespace) -> float | None:
    """The limit of --fail-over. Errors: Impossible."""
    if given.fail_over is None:
        return None
    from peakmem.setup import number

    text = given.fail_over.strip().removesuffix("%")
    limit = float(number("--fail-over", text, float, 0, 10**6, "percent of the GPU"))
    if given.from_url is None and not (given.gpu or any(text.startswith("gpu=") for text in given.sets)):
        raise Impossible("--fail-over is a share of a GPU: give --gpu, too")
    return limit
