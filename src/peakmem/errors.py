"""What can go wrong by a user's hand.

PeakmemError            every error that is told in one line, exit code 2
├── UnknownName         a model, GPU, optimizer, setting … that is in no table; says what is near
├── Impossible          settings or sizes that contradict each other; names both
├── Unreadable          a file that is not what it should be; names file, place and limit
└── Missing             an optional package is not installed; names the command that installs it
"""

from __future__ import annotations

from collections.abc import Iterable


class PeakmemError(ValueError):
    """A mistake that its message lets the reader mend: what was given, what is allowed, what to do.

    A setting or a size stands in a message as its flag, `--lora-rank`, and what was given stands in quotes
    (`printable`): so the page finds its own controls in it. about: names of settings or sizes that it is about where
    it does not say them; plain: the message for readers who have no command line.
    """

    def __init__(self, text: str = "", about: Iterable[str] = ()) -> None:
        super().__init__(text)
        self.about = tuple(about)
        self.plain = text


class UnknownName(PeakmemError):
    """A name that is in no table.

    see: the command that lists the known ones; near: what may be meant, where the caller knows better than the
    spelling; instead: what else may be given.
    """

    def __init__(self, what: str, given: object, known: Iterable[str], see: str = "",
                 near: Iterable[str] = (), about: Iterable[str] = (), instead: str = "") -> None:
        names = sorted(known)
        text = f"unknown {what} {printable(given)}."
        found = list(near) or [name for name in (nearest(str(given), names),) if name]
        if found:
            more = " …" if len(found) > 5 else ""
            text += f" Did you mean {', '.join(repr(name) for name in found[:5])}{more}?"
        more = f", or {instead}" if instead else ""
        known = f" Known: {', '.join(names)}" if len(names) <= 24 else ""
        super().__init__(text + (f" See: {see}" if see else known) + more, about)
        self.plain = text + (" Choose one of the list" if see else known) + more


class Impossible(PeakmemError):
    """Two given values that cannot both hold."""


class Unreadable(PeakmemError):
    """A file that cannot be read as what it should be."""


class Missing(PeakmemError):
    """An optional package is not installed. extra: the group of pyproject.toml that brings it."""

    def __init__(self, text: str = "", extra: str = "") -> None:
        super().__init__(f"{text}: {install(extra)}" if extra else text)


def install(extra: str) -> str:
    """The command that brings an extra; the package is in no registry."""
    return f"pip install -e '.[{extra}]' in peakmem's folder"


def nearest(given: str, names: Iterable[str]) -> str | None:
    """The known name closest to what was typed, or None when nothing is close."""
    import difflib

    lowered = {name.lower(): name for name in names}
    found = difflib.get_close_matches(given.lower()[:100], lowered, n=1, cutoff=0.6)
    return lowered[found[0]] if found else None


def printable(given: object, limit: int = 80) -> str:
    """A foreign value as it may stand in a message: quoted, cut, without control characters."""
    text = repr(given) if isinstance(given, str) else str(given)[: limit + 1]
    text = "".join(c if c.isascii() and c.isprintable() else f"\\u{ord(c):04x}" for c in text[: 2 * limit])
    return text if len(text) <= limit else text[: limit - 1] + "…"
