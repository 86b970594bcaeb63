"""`peakmem fit`."""

from __future__ import annotations

import json

from peakmem.cli.ask import model_of
from peakmem.cli.estimate_command import MODEL_HELP
from peakmem.cli.output import say, show
from peakmem.cli.parser import Parser, add_settings, settings_of
from peakmem.errors import Impossible


def parser() -> Parser:
    """MODEL, the GPU, every setting but the batch."""
    made = Parser(prog="peakmem fit", usage="peakmem fit MODEL --gpu GPU [--FIELD VALUE]… [--json]",
                  description="The largest batch that fits on a GPU: one sequence more does not.\n"
                  "Exit code 1 when none does; what would help is listed then.")
    made.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    made.add_argument("--json", action="store_true", help="the answer as JSON, the batch under `batch`")
    add_settings(made)
    return made


def run(words: list[str]) -> int:
    """Search, then say what was found."""
    given = parser().read(words)
    settings, sizes = settings_of(given)
    gpu = settings.pop("gpu", "")
    if not gpu:
        raise Impossible("which GPU? Give --gpu, for instance --gpu H100 or --gpu 24GiB. See: peakmem list gpus")
    if "batch" in settings:
        raise Impossible("--batch is what fit looks for: leave it out, or ask: peakmem estimate … --batch")
    from peakmem.plan.fit import as_json, fit

    model = model_of(given.model, sizes)
    found = fit(model, gpu, **settings)
    if given.json:
        say(json.dumps(as_json(found), allow_nan=False, indent=1) + "\n")
    else:
        from peakmem.plan.levers import measure_of, try_levers
        from peakmem.views.fit import page

        one = {**settings, "gpu": gpu, "batch": 1}
        tried, together = ((), None) if found.batch else try_levers(one, measure_of(model, gpu))
        show(lambda width: page(found.batch, found.ledger, found.at, found.above, width, tried, together))
    return 0 if found.batch else 1
