"""Which dropouts run: the model's own, and those before adapters."""

from __future__ import annotations

from peakmem.model import Model
from peakmem.setup import Setup


def dropouts_of(model: Model, setup: Setup) -> frozenset[str]:
    """By kind; --dropout stands for all of the model's, --lora-dropout for the adapters'.

    Source of LitGPT's 0.05: litgpt 0.4.5 finetune/lora.py. peft's default is 0.
    """
    given = {"attention": model.attention_dropout, "hidden": model.hidden_dropout, "embedding": model.embedding_dropout}
    if setup.run == "inference":
        return frozenset()
    given = given if setup.dropout < 0 else dict.fromkeys(given, setup.dropout)
    default = 0.05 if setup.implementation == "litgpt" else 0.0
    given["adapter"] = default if setup.lora_dropout < 0 else setup.lora_dropout
    return frozenset(kind for kind, p in given.items() if p > 0)
