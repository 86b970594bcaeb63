"""`peakmem list`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from peakmem.cli.output import say, show
from peakmem.cli.parser import Parser
from peakmem.errors import UnknownName
from peakmem.immutable import fields
from peakmem.views.layout import Line, wrapped

TABLES = ("models", "gpus", "optimizers", "precisions", "levers")


def parser() -> Parser:
    """Which table."""
    made = Parser(prog="peakmem list", usage="peakmem list {" + "|".join(TABLES) + "} [--json]",
                  description="The names that peakmem knows.")
    made.add_argument("table", metavar="TABLE", help=", ".join(TABLES))
    made.add_argument("--json", action="store_true", help="the whole table as JSON, one object for each row")
    return made


def run(words: list[str]) -> int:
    """Print a table."""
    given = parser().read(words)
    table = given.table
    if table not in TABLES:
        raise UnknownName("table", table, TABLES)
    if given.json:
        say(json.dumps(as_json(table), allow_nan=False, indent=1) + "\n")
        return 0
    show(lambda width: rows(table, width))
    return 0


def rows(table: str, width: int) -> list[Line]:
    """Names first, then what one wants to know before choosing."""
    lines: list[Line] = []
    found = {"models": models, "gpus": gpus, "optimizers": optimizers, "precisions": precisions,
             "levers": levers}[table]()
    wide = max(len(name) for name, _, _ in found) + 2
    for name, facts, more in found:
        first: Line = [(name.ljust(wide), "strong")]
        if wide + len(facts) <= width:
            lines.append([*first, (facts, "" if name else "dim")])
        else:
            head, *rest = wrapped(facts, width - wide)
            lines += [[*first, *head], *([(" " * wide, ""), *line] for line in rest)]
        for text in more:
            lines += wrapped(text, width, "    ", "    ", "dim")
    return lines


def as_json(table: str) -> list[dict[str, Any]]:
    """Each row as its table has it. Sizes: memory_gb as sold, 10⁹ bytes; smi_mib and torch_gib in 2²⁰ and 2³⁰, null
    where nobody printed them."""
    from peakmem.plan.levers import LEVERS
    from peakmem.tables.gpus import gpus
    from peakmem.tables.models import presets
    from peakmem.tables.optimizers import OPTIMIZERS
    from peakmem.tables.precisions import PRECISIONS

    found: Mapping[str, Callable[[], Iterable[Any]]] = {
        "models": lambda: presets().values(), "gpus": gpus, "optimizers": OPTIMIZERS.values,
        "precisions": PRECISIONS.values, "levers": lambda: LEVERS}
    derived = ("family",) if table == "models" else ()
    return [{name: plain(getattr(row, name)) for name in (*fields(type(row)), *derived) if name not in INNER}
            for row in found[table]()]


INNER = frozenset({"config", "change", "undo", "alone", "temporaries"})
"""What a row holds for peakmem's own use."""


def plain(value: Any) -> Any:
    """A cell as JSON has it."""
    if isinstance(value, (tuple, frozenset)):
        return sorted(value) if isinstance(value, frozenset) else list(value)
    return value


Row = tuple[str, str, tuple[str, ...]]


def models() -> list[Row]:
    from peakmem.tables.models import presets

    made: list[Row] = [("", f"{'parameters':>16}  architecture", ())]
    made += [(row.name, f"{row.parameters:>16,}  {row.family}", ()) for row in presets().values()]
    return [*made, ("custom", f"{'any':>16}  gpt2, sized by --layers, --hidden, …", ())]


def gpus() -> list[Row]:
    from peakmem.tables.gpus import gpus as table

    made: list[Row] = [("", f"{'as sold':>9}{'nvidia-smi':>15}{'PyTorch':>13}  capability", ())]
    for gpu in table():
        smi = f"{gpu.smi_mib:,} MiB" if gpu.smi_mib else "–"
        torch = f"{gpu.torch_gib:.2f} GiB" if gpu.torch_gib else "–"
        made.append((gpu.name, f"{gpu.memory_gb:>6g} GB{smi:>15}{torch:>13}  {gpu.capability}", ()))
    return [*made, ("", "or any size with its unit: 24GiB (2³⁰), 24GB (10⁹)", ())]


def optimizers() -> list[Row]:
    from peakmem.tables.optimizers import OPTIMIZERS

    return [(row.name, f"{row.title}: {row.states} state{'' if row.states == 1 else 's'} per parameter"
             + (f", {row.layout}" if row.layout != "full" and row.states else ""),
             tuple(text for text in (row.note, row.source) if text)) for row in OPTIMIZERS.values()]


def precisions() -> list[Row]:
    from peakmem.tables.precisions import PRECISIONS

    made: list[Row] = []
    for row in PRECISIONS.values():
        parts = " + ".join(f"{size} {name}" for name, size in row.per_parameter().items() if size)
        made.append((row.name, row.title, tuple(text for text in (
            f"bytes per parameter with AdamW: {row.total()} ({parts})", row.note, row.source) if text)))
    return made


def levers() -> list[Row]:
    from peakmem.plan.levers import LEVERS

    return [(row.name, row.flag, (f"shrinks {row.shrinks}", f"costs {row.costs}", row.source)) for row in LEVERS]
