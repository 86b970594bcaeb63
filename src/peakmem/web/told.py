"""A mistake in a request as JSON: one line, the settings and sizes it is about, and the line in parts for the page.

The page has no flags: where the line names a setting by its flag, its parts hold the setting's name, and the page puts
its own word there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from peakmem.errors import PeakmemError
from peakmem.setup import FIELDS
from peakmem.tables.resize import SIZES

NAMES = frozenset({*FIELDS, *SIZES, "tied"})
PARTS = re.compile(r"""(?<!\w)(?P<quote>['"])(?:\\.|(?!(?P=quote)).)*?(?:(?P=quote)|…)"""
                   r"|--(?P<flag>[a-z]+(?:-[a-z]+)*)")
"""What was given stands in quotes, and is no name of ours whatever it says."""


Parts = list[str | dict[str, str]]


def one_line(text: str) -> str:
    return " ".join(text.split())[:2000]


def mistake(error: PeakmemError, request: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """`error`, `fields` and `parts`. request: as far as it could be read."""
    said = parts(one_line(error.plain))
    return {"error": one_line(str(error)), "fields": about(error, said, request or {}), "parts": said}


def parts(text: str) -> Parts:
    """Text, and {"field": name} where it names a setting or a size by its flag."""
    found: Parts = []
    at = 0
    for match in PARTS.finditer(text):
        name = (match["flag"] or "").replace("-", "_")
        if name in NAMES:
            found += [text[at:match.start()], {"field": name}]
            at = match.end()
    return [part for part in (*found, text[at:]) if part]


def about(error: PeakmemError, said: Parts, request: Mapping[str, Any]) -> list[str]:
    """What is to be mended: of the settings that the line names those that were given; else what the error says."""
    named = [part["field"] for part in said if isinstance(part, dict)]
    given = {name for key in ("settings", "sizes") if isinstance(request.get(key), dict) for name in request[key]}
    return list(dict.fromkeys([name for name in named if name in given] or error.about or named))
