"""How a view says things: moments in words, foreign text made harmless, one line about the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peakmem.ledger import Ledger

OURS = frozenset("·×−–—…→≤≥²³⁰∞≈")
"""Characters beside ASCII that our own text has. Any other is escaped: it may turn a line around or be two wide."""

PHASES: Mapping[str, str] = {
    "start": "at the start of the step",
    "forward": "in forward",
    "backward": "in backward",
    "optimizer": "in the optimizer step",
    "step": "in the optimizer step",
    "clear": "after the gradients are cleared",
    "load": "after loading",
    "prefill": "in prefill",
    "decode": "in decode",
    "F1": "in the first third of forward",
    "F2": "in the second third of forward",
    "F3": "in the last third of forward",
    "B3": "in the first third of backward",
    "B2": "in the second third of backward",
    "B1": "in the last third of backward",
    "P1": "in the first third of prefill",
    "P2": "in the second third of prefill",
    "P3": "in the last third of prefill",
    "first decode": "at the first generated token",
    "last decode": "at the last generated token",
}
PLACES: Mapping[str, str] = {"loss": "at the loss", "lm_head": "at the head", "head": "at the head",
                             "embed_tokens": "at the embedding", "embedding": "at the embedding"}


def clean(text: object, limit: int = 4000) -> str:
    """Foreign text as it may stand in a terminal: no control, no right-to-left mark, nothing wide; cut at `limit`."""
    text = text if isinstance(text, str) else str(text)
    if not (text.isascii() and text.isprintable()):
        text = "".join(c if (c.isascii() and c.isprintable()) or c in OURS else escaped(c) for c in text[: limit + 1])
    return text if len(text) <= limit else text[: limit - 1] + "…"


def tight(formula: str) -> str:
    """Short sums in brackets without spaces, so that no line is broken there."""
    parts = formula.split("(")
    for i in range(1, len(parts)):
        inner, bracket, rest = parts[i].partition(")")
        if bracket and len(inner) <= 20:
            parts[i] = inner.replace(" ", "") + bracket + rest
    return "(".join(parts)


def escaped(character: str) -> str:
    """`\\u202e`, as Python and JSON write it."""
    number = ord(character)
    return f"\\u{number:04x}" if number < 0x10000 else f"\\U{number:08x}"


def moment_words(moment: str) -> str:
    """`backward/layers.31/mlp.gate_proj` as "in backward, at layers.31 mlp.gate_proj"; "" for no moment."""
    if not moment:
        return ""
    phase, _, place = moment.partition("/")
    name, _, number = phase.partition(".")
    text = PHASES.get(phase) or PHASES.get(name) or clean(phase)
    if number.isdigit():
        text += f" of micro-batch {int(number) + 1}"
    if not place:
        return text
    head = place.split("/")[0].split(".")[0]
    where = PLACES.get(place) or (PLACES["loss"] if head == "loss" else None)
    return f"{text}, {where or 'at ' + clean(place.replace('/', ' '))}"


def model_name(ledger: Ledger) -> str:
    """What the model is called."""
    model = ledger.run.get("model", "")
    if isinstance(model, Mapping):
        model = model.get("name", "")
    return clean(model, 60) or "model"


def settings_of(ledger: Ledger) -> Mapping[str, Any]:
    """The settings of the run, wherever the producer has put them."""
    inner = ledger.run.get("settings")
    return inner if isinstance(inner, Mapping) else ledger.run


def about(ledger: Ledger) -> str:
    """One line that says whose ledger it is: model, parameters, run, batch, precision, optimizer."""
    run, count = settings_of(ledger), ledger.parameters
    known = [f"{model_name(ledger)}, {count.total:,} parameters"]
    if count.trained != count.total:
        known[0] += f" ({count.trained:,} trained)"
    if run.get("batch") and run.get("sequence"):
        known.append(f"batch {_number(run['batch'])} × {read_by(run)}")
    training = run.get("run", "training") == "training"
    for name in ("precision", "optimizer") if training else ("precision",):
        if run.get(name):
            known.append(clean(run[name], 40))
    for name, value in run.items():
        if name in TOLD and value not in TOLD[name] and isinstance(value, (str, int)):
            known.append(f"{name.replace('_', ' ')} {clean(value, 40)}")
    return ", ".join(known if training else [f"{known[0]}, inference", *known[1:]])


def read_by(run: Mapping[str, Any]) -> str:
    """What each of a batch is: tokens, or what the run says."""
    if run.get("input"):
        return clean(run["input"], 40)
    return f"{_number(run['sequence'])} {'token' if run['sequence'] == 1 else 'tokens'}"


TOLD: Mapping[str, tuple[Any, ...]] = {
    "accumulation": (1, ""), "attention": ("auto", ""), "implementation": ("transformers", ""),
    "checkpoint": ("none", ""), "lora_rank": (0, ""), "shard": ("none", ""), "gpus": (1, ""),
    "offload": ("none", ""), "loss": ("upcast", ""), "state_dtype": ("auto", ""), "step": ("steady", ""),
    "target": (0, ""), "images": (-1, ""), "image_height": (448, ""), "image_width": (448, ""),
}
"""Settings named in that line where they are not the usual ones."""


def _number(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else clean(value, 20)
