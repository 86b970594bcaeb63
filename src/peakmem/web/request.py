"""What a request says: a model, its settings, and how much of the ledger is wanted. All of it is foreign."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from peakmem.errors import Impossible, UnknownName, Unreadable, printable
from peakmem.model import Model
from peakmem.setup import FIELDS, Setup

MOST = 2**20
"""Characters of one request."""
NESTED = 32
"""Deeper than any config.json. Python in a browser has a small stack: 5,000 brackets would end it."""


def parsed(text: str) -> dict[str, Any]:
    """The request as an object. Errors: Unreadable."""
    from peakmem.readers.json_file import parse

    if not isinstance(text, str) or len(text) > MOST:
        raise Unreadable(f"the request is longer than {MOST:,} characters")
    try:
        raw = text.encode("utf-8")
    except UnicodeEncodeError:
        raise Unreadable("the request is not UTF-8 text") from None
    if b"\0" in raw:  # elsewhere read as UTF-16
        raise Unreadable("the request is not UTF-8 text")
    if depth(text) > NESTED:
        raise Unreadable("the request is nested too deeply")
    found = parse(raw, "the request")
    if not isinstance(found, dict):
        raise Unreadable("the request is not a JSON object")
    return found


def depth(text: str) -> int:
    """How deep brackets are nested, outside of strings."""
    now = most = 0
    for bracket in re.findall(r'"(?:[^"\\]|\\.)*(?:"|$)|[\[\]{}]', text, re.DOTALL):
        if bracket in "[{":
            now += 1
            most = max(most, now)
        elif bracket in "]}":
            now -= 1
    return most


def only(request: Mapping[str, Any], *names: str) -> None:
    """Refuse what nobody would read. Errors: UnknownName."""
    for name in request:
        if name not in names:
            raise UnknownName("key in the request:", name, names)


def model_of(request: Mapping[str, Any]) -> Model:
    """`model`: a preset or custom; or `config`: the fields of a config.json, or its text; `sizes`: other dimensions.

    A name is never a path: nothing is read from a disk. Errors: UnknownName, Unreadable, Impossible; where sizes were
    given that cannot be, about those.
    """
    try:
        return sized(request)
    except Impossible as error:
        error.about = error.about or tuple(mapping(request, "sizes"))
        raise


def sized(request: Mapping[str, Any]) -> Model:
    """The model in its size."""
    from peakmem.tables.models import custom, find_model
    from peakmem.tables.resize import resize

    sizes = mapping(request, "sizes")
    config = request.get("config")
    if config is not None:
        from peakmem.readers.hf_config import from_config

        if isinstance(config, str):
            config = fields_of(config, name_of(request))
        model = from_config(config, name_of(request), "config.json")
        return resize(model, **sizes) if sizes else model
    name = request.get("model", "custom")
    if not isinstance(name, str):
        raise Impossible(f"model {printable(name)}: give the name of a preset, or custom")
    if name != "custom":
        model = find_model(name)
        return resize(model, **sizes) if sizes else model
    own = {key: sizes[key] for key in ("layers", "hidden", "heads", "vocabulary", "positions") if key in sizes}
    tied = {"tied": resize(custom(), tied=sizes["tied"]).tied} if "tied" in sizes else {}
    rest = {key: value for key, value in sizes.items() if key not in own and key != "tied"}
    model = custom(**own, **tied)
    return resize(model, **rest) if rest else model


def fields_of(text: str, name: str) -> Any:
    """What a config.json says, read as the command line reads the file. Errors: Unreadable."""
    from peakmem.readers.json_file import parse

    if depth(text) >= NESTED:
        raise Unreadable(f"{name} is nested too deeply")
    return parse(text.encode("utf-8", "replace"), name)


def name_of(request: Mapping[str, Any]) -> str:
    """What the reader calls the model of a file."""
    name = request.get("model", "config.json")
    if not isinstance(name, str):
        raise Impossible(f"model {printable(name)}: give a name")
    return printable(name, 60)[1:-1] or "config.json"


def settings_of(request: Mapping[str, Any], without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Checked settings of the run. Errors: UnknownName, Impossible."""
    given = mapping(request, "settings")
    for name in given:
        if name in without:
            raise Impossible(f"{name} is what this question looks for: leave it out")
        if name not in FIELDS:
            raise UnknownName("setting", name, FIELDS, "peakmem estimate --help")
    Setup.of(**given)
    return given


def mapping(request: Mapping[str, Any], key: str) -> dict[str, Any]:
    """A part of the request that is an object of plain values. Errors: Unreadable."""
    found = request.get(key)
    if found is None:
        return {}
    if not isinstance(found, dict) or len(found) > 100:
        raise Unreadable(f"{key} is not an object of names and values")
    return found


def whole(request: Mapping[str, Any], key: str, default: int, most: int) -> int:
    """A count in the request. Errors: Impossible."""
    found = request.get(key, default)
    if isinstance(found, bool) or not isinstance(found, int) or not 0 <= found <= most:
        raise Impossible(f"{key} {printable(found)}: give a whole number from 0 to {most:,}")
    return found
