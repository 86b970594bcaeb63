"""Which model a row is about: a preset by its name, or a network that only these tables mention."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from peakmem.errors import PeakmemError, printable
from peakmem.immutable import replace
from peakmem.measured.rows import NotExpressed, Row
from peakmem.model import Model
from peakmem.tables.models import find_model, presets

NAMES: Mapping[str, str] = {
    "GPT-BigCode santacoder": "santacoder", "BERT-base (LM head)": "bert-base", "phi-1.5": "phi-1_5",
    "StableLM-base-alpha-3B": "stablelm-base-alpha-3b", "ViT-L/16": "vit-large", "ViT-H/14": "vit-huge",
    "Llama-3-8B": "llama-3.1-8b", "TinyLlama-1.1B": "tinyllama-1.1b", "Mixtral-8x7B": "mixtral-8x7b",
}
"""How the sources write names that the presets have differently."""

CONFIGS: Mapping[str, Mapping[str, Any]] = {
    "phi-1_5": {"model_type": "phi", "num_hidden_layers": 24, "hidden_size": 2048, "num_attention_heads": 32,
                "intermediate_size": 8192, "vocab_size": 51200, "partial_rotary_factor": 0.5},
    "stablelm-base-alpha-3b": {"model_type": "gpt_neox", "num_hidden_layers": 16, "hidden_size": 4096,
                               "num_attention_heads": 32, "intermediate_size": 16384, "vocab_size": 50688,
                               "rotary_pct": 0.25},
    "powerlm-3b": {"model_type": "granite", "num_hidden_layers": 40, "hidden_size": 2304, "num_attention_heads": 36,
                   "num_key_value_heads": 36, "intermediate_size": 9216, "vocab_size": 49152,
                   "tie_word_embeddings": True},
}
"""config.json of networks without a preset: microsoft/phi-1_5, stabilityai/stablelm-base-alpha-3b (LitGPT rounds its
vocabulary up to 50,688), ibm/PowerLM-3b."""

GROUPS: Mapping[str, int] = {"llama-2-70b": -1}
"""Weights that share a scale in the published GPTQ file of a model, where they are not 128: -1 is a whole column
(TheBloke/Llama-2-70B-GPTQ, branch main)."""

UNKNOWN: Mapping[str, str] = {
    "BERT-large (seq-cls)": "the class with a classifier on BERT's pooler is not built; BERT is here with its language "
                            "model head",
    "SwiGLU FFN 8192 toy": "a bare feed-forward block is no model that peakmem has",
    "GPT-2 124M": "llm.c's buffers are laid out by hand, in one block for each kind: no PyTorch runs",
}
SIZES = {"layers": "layers", "hidden": "hidden", "heads": "heads", "kv_heads": "kv_heads", "ffn": "feed_forward",
         "vocab": "vocabulary"}


def model_of(row: Row) -> Model:
    """The model, its sizes compared with those that the row names. Errors: NotExpressed."""
    name = row["model"]
    if name in UNKNOWN:
        raise NotExpressed(UNKNOWN[name])
    word = NAMES.get(name, name).lower()
    try:
        model = from_config(word) if word in CONFIGS and word not in presets() else find_model(word)
    except PeakmemError as error:
        raise NotExpressed(f"unknown model {printable(name, 60)}: {error}") from None
    if word in GROUPS and "gptq" in f"{row['param_dtype']} {row['lora']}".lower():
        model = replace(model, stored=("gptq", 4, GROUPS[word], ()))
    classes = re.search(r"\b(\d{1,6})[- ]class(?:es)?\b", row["notes"])
    if model.classes and classes:
        model = replace(model, classes=int(classes[1]))
    for column, size in SIZES.items():
        said, ours = row.count(column), getattr(model, size)
        if column == "ffn" and model.experts:
            ours = model.expert_feed_forward or ours
        if said and ours != said and ours:
            raise NotExpressed(f"{column} {said:,} is not that of {model.name}, {ours:,}")
    return model


def from_config(word: str) -> Model:
    from peakmem.readers.hf_config import from_config as read

    return replace(read(CONFIGS[word], word, word), source=f"config.json of {word}")
