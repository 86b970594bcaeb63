"""From words on the command line to a model and its estimate."""

from __future__ import annotations

import argparse
import os
from typing import Any

from peakmem.errors import Impossible, UnknownName, Unreadable, printable
from peakmem.ledger import Ledger
from peakmem.model import Model


def model_of(word: str, sizes: dict[str, Any]) -> Model:
    """MODEL as the command line has it: `custom`, a preset, a file, a folder, `-`; resized.

    Errors: UnknownName, Unreadable, Impossible.
    """
    from peakmem.tables.models import custom, find_model
    from peakmem.tables.resize import resize

    if word == "custom":
        if not sizes:
            return custom()
        own = {name: sizes[name] for name in ("layers", "hidden", "heads", "vocabulary", "positions") if name in sizes}
        tied = {"tied": resize(custom(), tied=sizes["tied"]).tied} if "tied" in sizes else {}
        rest = {name: value for name, value in sizes.items() if name not in own and name != "tied"}
        model = custom(**own, **tied)
        return resize(model, **rest) if rest else model
    try:
        model = Model.read(word) if is_path(word) else find_model(word)
    except UnknownName:
        if "/" not in word or os.path.exists(word):
            raise
        text = f"{printable(word)}: no such file, and no model of that name. See: peakmem list models"
        raise Unreadable(text) from None
    return resize(model, **sizes) if sizes else model


def is_path(word: str) -> bool:
    """Whether a word means a file. The name of a preset does, too, where it is written as a path: `./gpt2`."""
    if word == "-" or word.startswith((".", "/", "~", "hf://")) or word.endswith((".json", ".safetensors", ".gguf")):
        return True
    try:
        return os.path.lexists(word) and ("/" in word or not _preset(word))
    except ValueError:  # a name with a zero byte
        return False


def _preset(word: str) -> bool:
    from peakmem.tables.models import presets

    return word in presets()


def asked(given: argparse.Namespace) -> tuple[Model, dict[str, Any]]:
    """The model and the settings: from MODEL and flags, or from a link of the page, in which flags change something.

    Errors: UnknownName, Unreadable, Impossible.
    """
    from peakmem.cli.parser import Usage, settings_of

    settings, sizes = settings_of(given)
    url = getattr(given, "from_url", None)
    if url is None:
        if given.model is None:
            raise Usage("missing: MODEL, or --from-url. See: peakmem estimate --help")
        return model_of(given.model, sizes), settings
    if given.model is not None:
        raise Impossible(f"MODEL {printable(given.model)} and --from-url: the link names a model already")
    from peakmem.web.link import from_url
    from peakmem.web.request import model_of as model_in

    link = from_url(url)
    return model_in({**link, "sizes": link.get("sizes", {}) | sizes}), link["settings"] | settings


def estimated(given: argparse.Namespace) -> Ledger:
    """The estimate for MODEL and its settings."""
    from peakmem.estimate import estimate

    model, settings = asked(given)
    return estimate(model, **settings)
