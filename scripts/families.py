"""docs/architectures.md, and the list of families in README.md: what is known of each, asked of the code itself.

One model of each family, the class's own where it has defaults, is asked for every kind of run. `--write` writes both,
without it the page is printed; a test compares.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from peakmem.architectures import CODE, code_of
from peakmem.errors import Impossible
from peakmem.estimate import usual_sequence
from peakmem.estimate.parameters import define
from peakmem.estimate.settings import structure_of
from peakmem.estimate.tape import Tape, writing
from peakmem.estimate.ways import divided
from peakmem.model import Model
from peakmem.readers.hf_config import FAMILIES, OLD_NAMES, from_config
from peakmem.setup import Setup
from peakmem.tables.models import presets

ROOT = Path(__file__).resolve().parent.parent
TARGET, README = ROOT / "docs" / "architectures.md", ROOT / "README.md"
PLACE = re.compile(r"(?<=<!-- families -->\n).*?(?=<!-- end of families -->)", re.S)

FIELDS: Mapping[str, dict[str, Any]] = {
    "deepseek_v2": {"num_experts_per_tok": 6, "moe_intermediate_size": 1408},
    "dots1": {"n_routed_experts": 128, "n_shared_experts": 2, "num_experts_per_tok": 6},
    "gemma4": {"text_config": {"hidden_size_per_layer_input": 0}, "vision_config": {"patch_size": 16}},
    "gemma4_text": {"hidden_size_per_layer_input": 0},
    "glm4_moe": {"head_dim": 128},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 16},
    "ministral": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 8},
    "nemotron-nas": {"num_hidden_layers": 1, "block_configs": [
        {"attention": {"n_heads_in_group": 8}, "ffn": {"ffn_mult": 2.625}}]},
    "falcon": {"num_attention_heads": 64, "hidden_size": 4096},
    **dict.fromkeys(("idefics3", "smolvlm"), {"vision_config": {"image_size": 364, "patch_size": 14}}),
    "gemma3": {"vision_config": {"vision_use_head": False, "image_size": 896, "patch_size": 14}},
    "qwen3_5": {"vision_config": {"patch_size": 16}},
}
"""What a class has no default for, or one that says nothing of the family: a tower left out, a width that is odd."""

ASKED: Mapping[str, Mapping[str, Any]] = {
    "training": {},
    "recomputed": {"checkpoint": "full"},
    "sharded": {"shard": "fsdp2", "gpus": 2},
    "eager": {"attention": "eager"},
    "LoRA": {"lora_rank": 8},
    "inference": {"run": "inference"},
    "divided": {"run": "inference", "tensor_parallel": 2},
    "in chunks": {"run": "inference", "prefill_chunk": 16},
    "pictures": {"images": 1},
}
"""A column of the table -> the settings that are asked for."""

SERVED = ("divided", "in chunks")
"""Columns that say nothing of a model that gives no tokens."""

HEAD = """# Architectures

What is known of each family, by the `model_type` of its `config.json`. A model of each was asked for each run: `yes`
means that its bytes are counted; `no` that the run is refused in one line, which stands below the table.

- **training**: a step through transformers' class; **recomputed**: with `--checkpoint full`; **sharded**: with
  `--shard fsdp2`; **eager**: with `--attention eager`; **LoRA**: with adapters on all linear layers.
- **inference**: `tokens`, a prompt and what is generated from it, with a cache or states; `one pass`, a forward pass.
  **divided**: with `--tensor-parallel`; **in chunks**: with `--prefill-chunk`.
- **pictures**: with `--images 1` among the text; where there are none, or nothing else, the group says so.
- **also as**: other code that `--implementation` knows.

What a single field of a file makes impossible is told where it is read, and `peakmem trace` takes any module: see
[tracing](trace.md), and [how one is added](add-an-architecture.md). {others}

This page is made by `scripts/families.py`, which asks the code; a test compares them.
"""

GROUPS = {"decoder": "Text", "beside": "Text with pictures", "pair": "Encoder and decoder",
          "encoder": "Encoders of text", "pictures": "Pictures: classes, captions, diffusion"}
COLUMNS = ("model_type", *ASKED, "also as", "presets")
SHOWN = 3


class Family(NamedTuple):
    """A row of the table; refused: the message by column."""

    kind: str
    model: Model
    refused: Mapping[str, str]

    @property
    def generates(self) -> bool:
        return bool(getattr(code_of(self.model.architecture), "GENERATES", True))

    @property
    def group(self) -> str:
        if "encoder_decoder" in self.model.switches:
            return "pair"
        pictures = self.model.image or self.model.towers
        if self.generates:
            return "beside" if pictures else "decoder"
        return "pictures" if pictures else "encoder"

    def answers(self, name: str) -> bool:
        """Whether a column says something of it."""
        return self.group == "beside" if name == "pictures" else self.generates or name not in SERVED

    @property
    def cells(self) -> Iterator[str]:
        yield f"`{self.kind}`"
        for name in ASKED:
            if not self.answers(name):
                yield "–"
            elif name in self.refused:
                yield "no"
            else:
                yield "yes" if name != "inference" else "tokens" if self.generates else "one pass"
        yield ", ".join(way for kind, way in CODE if kind == self.model.architecture and way != "transformers")
        named = presets_of(self.kind)
        more = f" and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
        yield ", ".join(f"`{name}`" for name in named[:SHOWN]) + more


def presets_of(kind: str) -> list[str]:
    """The names of a family's presets; those of diffusers name a class instead."""
    return [row.name for row in presets().values()
            if (row.config.get("model_type") or from_config(row.config).architecture) == kind]


def families() -> Iterator[Family]:
    """Every family that is known, as it answers."""
    for kind in FAMILIES:
        model = from_config({"model_type": kind, **FIELDS.get(kind, {})}, kind, whole=True)
        yield Family(kind, model, {name: why for name, asked in ASKED.items() if (why := refusal(model, asked))})


def refusal(model: Model, asked: Mapping[str, Any]) -> str:
    """Why a run is refused; nothing where it is counted."""
    try:
        setup = Setup.of(**{"sequence": usual_sequence(model, dict(asked)), **asked})
        structure, _ = structure_of(model, setup)
        tape = Tape(structure.ones)
        tape.parts = divided(tape, structure)
        with writing(tape):
            define(tape, structure, code_of(structure.architecture))
    except Impossible as error:
        return str(error)
    return ""


def page(found: Sequence[Family]) -> str:
    """The whole page."""
    old = ", ".join(f"`{name}`" for name in OLD_NAMES)
    parts = [HEAD.replace("{others}", f"Read as one of these: {old}.")]
    for group, title in GROUPS.items():
        rows = [row for row in found if row.group == group]
        lines = [COLUMNS, ("---",) * len(COLUMNS), *(tuple(row.cells) for row in rows)]
        parts.append(f"\n## {title}\n\n" + "".join(f"| {' | '.join(cells)} |\n" for cells in lines))
        parts += ["\nRefused:\n\n", *reasons(rows)]
    return "".join(parts)


def reasons(rows: Sequence[Family]) -> Iterator[str]:
    """Each message once, with the families that it is for, and the columns."""
    told: dict[str, dict[str, list[str]]] = {}
    for row in rows:
        for name, why in row.refused.items():
            if row.answers(name):
                general = why.replace(row.model.architecture, "…")
                told.setdefault(general, {}).setdefault(row.kind, []).append(name)
    for why, places in told.items():
        names = dict.fromkeys(name for columns in places.values() for name in columns)
        yield f"- *{', '.join(names)}*, {', '.join(f'`{kind}`' for kind in places)}: {why}\n"


def listed(found: Sequence[Family]) -> str:
    """The README's lines: how many, and their names by what they are."""
    lines = [f"{len(found)} families of models are known, by the `model_type` of their `config.json`:\n"]
    for group, title in GROUPS.items():
        names = ", ".join(row.kind for row in found if row.group == group)
        lines += textwrap.wrap(f"- **{title}**: {names}", 120, subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(lines) + "\n"


def readme(found: Sequence[Family]) -> str:
    """README.md with its list as it is now."""
    return PLACE.sub(lambda _: listed(found), README.read_text("utf-8"))


if __name__ == "__main__":
    answered = list(families())
    if "--write" in sys.argv:
        TARGET.write_text(page(answered), encoding="utf-8")
        README.write_text(readme(answered), encoding="utf-8")
    else:
        print(page(answered), end="")
