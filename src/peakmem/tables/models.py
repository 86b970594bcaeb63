"""Models by name: dimensions as their config.json has them, the parameter count, and where they come from.

`parameters` is the number of elements of the unique parameters of the class that trains, counted with transformers
5.24 on the meta device; a test counts them again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any

from peakmem.errors import Impossible, UnknownName, printable
from peakmem.immutable import field, immutable, replace
from peakmem.model import Model
from peakmem.setup import number

Config = Mapping[str, Any]


@immutable
class Preset:
    """One model: a name, the fields of its config.json that make its size, its unique parameters, the source."""

    name: str
    config: Config
    parameters: int
    source: str
    aliases: tuple[str, ...] = field(default=())

    @property
    def family(self) -> str:
        """transformers' model_type, or the class that a file of diffusers names."""
        return str(self.config.get("model_type") or self.config["_class_name"])


MLC = "mlc-ai/mlc-llm 01ced33 python/mlc_llm/model/model_preset.py"
AIC = "aiconfigurator-core 0.12.0 model_configs"
HUB = "config.json of "
DEFAULT = "transformers 5.24 class defaults"


def decoder(kind: str, layers: int, hidden: int, heads: int, kv: int, feed_forward: int, vocabulary: int,
            tied: bool = False, **more: Any) -> Config:
    """A decoder with rotary positions, as its config.json says it."""
    return {"model_type": kind, "num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads,
            "num_key_value_heads": kv, "intermediate_size": feed_forward, "vocab_size": vocabulary,
            "tie_word_embeddings": tied, **more}


def gpt2(layers: int, hidden: int, heads: int) -> Config:
    """A GPT-2."""
    return {"model_type": "gpt2", "n_layer": layers, "n_embd": hidden, "n_head": heads}


def neox(layers: int, hidden: int, heads: int, vocabulary: int = 50304, **more: Any) -> Config:
    """A GPT-NeoX or a Pythia."""
    return {"model_type": "gpt_neox", "num_hidden_layers": layers, "hidden_size": hidden,
            "num_attention_heads": heads, "intermediate_size": 4 * hidden, "vocab_size": vocabulary, **more}


def opt(layers: int, hidden: int, heads: int, **more: Any) -> Config:
    """An OPT."""
    return {"model_type": "opt", "num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads,
            "ffn_dim": 4 * hidden, **more}


def encoder(kind: str, layers: int, hidden: int, heads: int, **more: Any) -> Config:
    """A BERT or a ViT."""
    return {"model_type": kind, "num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads,
            "intermediate_size": 4 * hidden, **more}


ROWS = ("model_rows", "kin_model_rows", "open_model_rows", "recent_model_rows", "tower_model_rows",
        "picture_model_rows", "diffusion_model_rows", "newest_model_rows", "default_model_rows")
"""Modules with rows: the names that are asked for most come first."""


@cache
def presets() -> Mapping[str, Preset]:
    """Every row by its name."""
    return {row.name: row for module in ROWS for row in rows(module)}


def rows(module: str) -> tuple[Preset, ...]:
    """The rows of one module."""
    found: tuple[Preset, ...] = import_module(f"peakmem.tables.{module}").ROWS
    return found


def by_name(name: str) -> Preset | None:
    """The row of this very name; modules behind the one that has it are not loaded."""
    return next((row for module in ROWS for row in rows(module) if row.name == name), None)


def find_model(name: str) -> Model:
    """A preset by its name, an alias or a hub id; capitals, `_`, `-instruct`, `-it`, `-chat` and `-hf` do not matter.

    Errors: UnknownName with the nearest name.
    """
    from peakmem.readers.hf_config import from_config

    row = by_name(name) or _by_key().get(_key(name))
    if row is None:
        begun = [key for key in _by_key() if _key(name) and key.startswith(_key(name))]
        raise UnknownName("model", name, presets(), "peakmem list models",
                          dict.fromkeys(_by_key()[key].name for key in sorted(begun, key=lambda key: (len(key), key))),
                          about=["model"])
    model = from_config(row.config, row.name, f"preset {row.name}", whole=True)
    if _key(name) == _key(row.name):
        return replace(model, source=row.source)
    taken = f"{printable(name, 60)[1:-1]} is taken as {row.name}: the same sizes"
    return replace(model, source=row.source, notes=(taken, *model.notes))


@cache
def _by_key() -> Mapping[str, Preset]:
    return {_key(name): row for row in presets().values() for name in (row.name, *row.aliases)}


def _key(name: str) -> str:
    """A name without what people write in different ways."""
    name = name[:200].lower().rsplit("/", 1)[-1]
    name = re.sub(r"^meta-", "", name)
    name = re.sub(r"[-_](instruct|chat|it|pt|hf|base|text)(?=[-_]|$)", "", name)
    return re.sub(r"[-_ ]", "", name)


def custom(layers: int = 12, hidden: int = 768, heads: int = 12, vocabulary: int = 50257, tied: bool = True,
           positions: int = 2048) -> Model:
    """A GPT-2 block of any size: feed-forward 4 × hidden, biases, dropout 0.1, learned positions.

    Errors: Impossible for a size out of range, or a hidden size that the heads do not divide.
    """
    from peakmem.readers.hf_config import from_config

    sizes = {"layers": layers, "hidden": hidden, "heads": heads, "vocabulary": vocabulary, "positions": positions}
    whole = {name: number(f"--{name}", value, int, 1, 10**9) for name, value in sizes.items()}
    if whole["hidden"] % whole["heads"]:
        raise Impossible(f"--hidden {whole['hidden']:,} is not divisible by --heads {whole['heads']:,}")
    config = {"model_type": "gpt2", "n_layer": whole["layers"], "n_embd": whole["hidden"], "n_head": whole["heads"],
              "vocab_size": whole["vocabulary"], "n_positions": whole["positions"], "tie_word_embeddings": tied}
    model = from_config(config, "custom", "custom", whole=True)
    note = f"a GPT-2 block with feed-forward 4 × hidden and at least {whole['positions']:,} learned positions"
    return replace(model, source="given dimensions", longest=0, notes=(note, *model.notes))
