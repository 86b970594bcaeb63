"""Where a reader may begin: settings that a first link sets, and what a script would ask."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape

from peakmem.tables.glossary import WORDS

STATES: Mapping[str, Mapping[str, str | int]] = {
    "card": {"model": "llama-3.1-8b", "gpu": "RTX 4090", "precision": "bf16", "lora_rank": 16, "checkpoint": "full"},
    "plan": {"model": "llama-3.1-70b", "gpu": "H100 SXM 80GB", "shard": "fsdp2", "gpus": 64, "checkpoint": "full",
             "sequence": 8192},
}
COMMANDS = """peakmem estimate llama-3.1-8b --gpu H100 --json > ledger.json
peakmem estimate config.json --gpu H100 --fail-over 95
peakmem fit config.json --gpu "RTX 4090" --precision bf16 --lora-rank 16
peakmem compare ledger.json "llama-3.1-8b --checkpoint full"
peakmem diagnose run.log config.json --batch 4

python -c 'import peakmem; print(peakmem.estimate("gpt2", batch=8).peak.bytes)'

peakmem serve &
curl localhost:8000/api/ask -H 'content-type: application/json' \\
  -d '{"model": "gpt2", "settings": {"batch": 8}}'"""


def state(name: str) -> str:
    """The part of a link after #, as url.js reads it."""
    from urllib.parse import urlencode

    return urlencode({"v": 1, **STATES[name]})


def explained(text: str) -> str:
    """`[[word]]` or `[[as it stands|word]]` as a word that the glossary explains. Errors: KeyError."""
    def made(found: re.Match[str]) -> str:
        word = found[2] or found[1]
        plain = escape(re.sub(r"[`*]", "", WORDS[word]))
        return f'<dfn class="term" data-term="{word}" title="{plain}">{found[1]}</dfn>'

    return re.sub(r"\[\[([^\]|]+)(?:\|([^\]]+))?\]\]", made, text)
