"""Reading a table of measured runs: any CSV with these columns, whoever wrote it."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

from peakmem.errors import Unreadable, printable
from peakmem.files import read
from peakmem.immutable import immutable

OWN = Path(__file__).with_name("runs.csv")
COLUMNS = ("id source kind model params layers hidden heads kv_heads ffn vocab tied framework seq "
           "micro_batch grad_accum param_dtype compute_dtype optimizer recompute attention compile sharding "
           "n_gpus gpu lora fused_ce offload metric value unit notes complete trust").split()
MOST_BYTES, MOST_ROWS, MOST_CELL = 4 * 2**20, 5_000, 4_000


class NotExpressed(Exception):
    """A row says something for which there is no setting; the message is the reason."""


@immutable
class Row:
    """One published figure. Cells are text, as the file has them."""

    cells: tuple[str, ...]

    def __getitem__(self, column: str) -> str:
        return self.cells[COLUMNS.index(column)]

    @property
    def name(self) -> str:
        return self["id"]

    @property
    def family(self) -> str:
        """The letters that rows of one source share."""
        return self.name.rstrip("0123456789") or self.name

    def count(self, column: str, default: int = 0) -> int:
        """A cell that is a whole number; empty: the default. Errors: NotExpressed."""
        text = self[column]
        if not text:
            return default
        if not text.isascii() or not text.isdigit() or len(text) > 15:
            raise NotExpressed(f"{column} is not a whole number: {printable(text, 40)}")
        return int(text)


def read_rows(path: str | Path | None = None) -> list[Row]:
    """The rows of a file, of our own table without one.

    Errors: Unreadable, with the place, for what is no such table, or is too large for one.
    """
    where = OWN if path is None else Path(path)
    data = read(where, MOST_BYTES, streams=True)
    if len(data) > MOST_BYTES:
        raise Unreadable(f"{printable(str(where))}: more than {MOST_BYTES // 2**20} MiB; a table of runs is smaller")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Unreadable(f"{printable(str(where))}: not UTF-8 text") from None
    return list(rows_of(text, printable(str(where))))


def rows_of(text: str, where: str) -> Iterator[Row]:
    """Rows of a table in a text. Errors: Unreadable."""
    if "\0" in text:
        raise Unreadable(f"{where}: zero bytes in it")
    lines = csv.reader(StringIO(text, newline=""), strict=True)
    try:
        header = next(lines, [])
        missing = [name for name in COLUMNS if name not in header]
        if missing:
            raise Unreadable(f"{where}: no column {', '.join(missing[:8])}{', …' if len(missing) > 8 else ''}; the "
                             "first line names the columns, as in peakmem's own measured/runs.csv")
        places = [header.index(name) for name in COLUMNS]
        for number, cells in enumerate(lines, 1):
            if not cells:
                continue
            if number > MOST_ROWS:
                raise Unreadable(f"{where}: more than {MOST_ROWS:,} rows")
            if len(cells) != len(header):
                raise Unreadable(f"{where}: row {number} has {len(cells)} cells, the first line {len(header)}")
            if max(map(len, cells)) > MOST_CELL:
                raise Unreadable(f"{where}: row {number} has a cell of more than {MOST_CELL:,} characters")
            yield Row(tuple(cells[place].strip() for place in places))
    except csv.Error as error:
        raise Unreadable(f"{where}: line {lines.line_num}: {error}") from None
