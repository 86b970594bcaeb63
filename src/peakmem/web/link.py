"""A link of the page, read back: `#v=1&model=llama-3.1-8b&sequence=8192&layers=16`."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlsplit

from peakmem.errors import Impossible, UnknownName, Unreadable, printable
from peakmem.setup import FIELDS
from peakmem.tables.resize import SIZES

LONGEST = 100_000


def from_url(url: str) -> dict[str, Any]:
    """A request without `ask`: `model`, `settings`, and `sizes` and `config` where the link has them.

    Errors: Unreadable for what is no link of the page, UnknownName for a name in it that is neither setting nor size.
    """
    if len(url) > LONGEST:
        raise Unreadable(f"the link is longer than {LONGEST:,} characters")
    text = urlsplit(url.strip()).fragment if "#" in url else url.strip()
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=True, max_num_fields=200)
    except ValueError:
        pairs = []
    given = dict(pairs)
    if len(given) != len(pairs):
        raise Impossible(f"{printable(url)} says one thing twice")
    if given.pop("v", "") != "1":
        raise Unreadable(f"{printable(url)} is no link of peakmem's page: those have #v=1&model=…")
    request: dict[str, Any] = {"model": given.pop("model", "custom"), "settings": {}}
    config = given.pop("config", "")
    if config == "too-long":
        raise Impossible(f"the link does not hold {printable(request['model'])}, which was too long for it: give the "
                         "file")
    if config:
        from peakmem.readers.json_file import parse

        request["config"] = parse(config.encode(), "config in the link")
    for name, value in given.items():
        if name not in FIELDS and name not in (*SIZES, "tied"):
            raise UnknownName("name in the link:", name, [*FIELDS, *SIZES, "tied"])
        if value:
            request.setdefault("settings" if name in FIELDS else "sizes", {})[name] = value
    return request
