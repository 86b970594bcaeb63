"""The fields of one configuration, read one by one, each checked and marked as used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peakmem.errors import Impossible, UnknownName, Unreadable, printable
from peakmem.readers.json_file import NotFinite
from peakmem.setup import LIMIT

ACTIVATIONS: Mapping[str, str] = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_new": "gelu_new", "relu": "relu",
    "gelu_pytorch_tanh": "gelu_pytorch_tanh", "quick_gelu": "quick_gelu", "relu2": "relu2",
}
"""Names that a file may use, and the one name of each."""
NO_SIZE = frozenset({"max_window_layers", "sliding_window", "attention_chunk_size", "pretraining_tp", "n_group",
                     "topk_group", "pad_token_id", "num_ln_in_parallel_attn", "no_rope_layer_interval"})
"""Counts that no parameter's size depends on."""


class Fields:
    """A configuration with its defaults.

    file: name for messages, printable; given: what the file says; defaults: what holds where the file says nothing;
    notes: what a reader of the answer should know, one line each; assumed: sizes on which the file is silent, with
    the part of the file, such as text_config, where they would stand.
    """

    def __init__(self, file: str, given: Mapping[str, Any], defaults: Mapping[str, Any],
                 aliases: Mapping[str, str] | None = None) -> None:
        self.file = file
        self.given = dict(given)
        self.defaults = defaults
        self.used: set[str] = set()
        self.notes: list[str] = []
        self.place = ""
        self.assumed: dict[tuple[str, str], str] = {}
        # transformers lets the alias win over the field that it stands for
        for alias, name in (aliases or {}).items():
            if alias in self.given:
                self.given[name] = self.given.pop(alias)
                self.used.add(name)

    def value(self, name: str) -> Any:
        """What the file says, or the default."""
        self.used.add(name)
        return self.given[name] if name in self.given else self.defaults.get(name)

    def count(self, name: str, least: int = 1, most: int = LIMIT, null: int | None = None) -> int:
        """A whole number. null: what null means, where the field may be null. Errors: Unreadable."""
        value = self.value(name)
        if name not in self.given and name not in NO_SIZE and (null if value is None else value):
            self.assume(name, null if value is None else value)
        if value is None and null is not None:
            return null
        limits = f"give a whole number from {least:,} to {most:,}"
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.wrong(name, limits)
        if isinstance(value, float):
            if isinstance(value, NotFinite) or not value.is_integer():
                raise self.wrong(name, limits)
            self.notes.append(f"{name}: {value} is read as {int(value)}")
            value = int(value)
        if not least <= value <= most:
            raise self.wrong(name, limits)
        return value

    def fraction(self, name: str, null: float = 0.0) -> float:
        """A number from 0 to 1. Errors: Unreadable."""
        value = self.value(name)
        if value is None:
            return null
        if isinstance(value, (bool, NotFinite)) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
            raise self.wrong(name, "give a number from 0 to 1")
        return abs(float(value))

    def flag(self, name: str, null: bool | None = None) -> bool:
        """true or false. null: what null means, where the field may be null. Errors: Unreadable."""
        value = self.value(name)
        if value is None and null is not None:
            return null
        if not isinstance(value, bool):
            raise self.wrong(name, "give true or false")
        if name == "tie_word_embeddings" and name not in self.given:
            self.assume(name, str(value).lower())
        return value

    def activation(self, name: str) -> str:
        """The name of an activation function. Errors: Unreadable, UnknownName."""
        value = self.value(name)
        if not isinstance(value, str):
            raise self.wrong(name, "give the name of an activation function")
        if value not in ACTIVATIONS:
            raise UnknownName(f"activation function in {self.file}, field {name}:", value, ACTIVATIONS)
        return ACTIVATIONS[value]

    def kinds(self, name: str, layers: int, names: Mapping[str, str]) -> tuple[str, ...] | None:
        """A list with one word for each layer, in our words, or None when there is none. Errors: Unreadable."""
        value = self.value(name)
        if value is None:
            return None
        if not isinstance(value, list):
            raise self.wrong(name, f"give a list of {layers:,} words")
        if len(value) != layers:
            raise Impossible(f"{self.file}: {name} has {len(value):,} entries, num_hidden_layers is {layers:,}; "
                             "give one entry for each layer")
        for word in value:
            if not isinstance(word, str) or word not in names:
                raise Unreadable(f"{self.file}: {name} has {printable(word)}; known: {', '.join(names)}")
        return tuple(names[word] for word in value)

    def assume(self, name: str, value: object) -> None:
        """A size that the file does not give, and what holds instead."""
        self.assumed.setdefault((self.place, name), f"{value:,}" if type(value) is int else str(value))

    def wrong(self, name: str, allowed: str) -> Unreadable:
        """The error for a field whose value cannot be, or that is not there and has no default."""
        if name not in self.given and self.defaults.get(name) is None:
            return Unreadable(f"{self.file}: {name} is missing, and has no default; {allowed}")
        value = self.given.get(name, self.defaults.get(name))
        what = value.text if isinstance(value, NotFinite) else "null" if value is None else printable(value, 40)
        kind = {bool: "a truth value", str: "a string", list: "a list", dict: "an object"}.get(type(value), "")
        return Unreadable(f"{self.file}: {name} is {what}{', ' + kind if kind else ''}; {allowed}")

    def said(self, name: str) -> str:
        """A field with its value for a message, with "by default" where the file is silent."""
        return f"{name} {self.value(name)}" + ("" if name in self.given else " (the default)")
