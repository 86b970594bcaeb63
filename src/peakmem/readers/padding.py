"""The padding token's number. It decides no size, but transformers builds no model whose vocabulary does not hold it.

torch 2.13 nn/modules/sparse.py, Embedding: "Padding_idx must be within num_embeddings".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peakmem.errors import Impossible, printable
from peakmem.readers.json_file import NotFinite

UNPADDED = frozenset("""falcon bloom gpt_bigcode gptj codegen mpt mamba mamba2 falcon_mamba nemotron_h gpt2 gpt_neox
gpt_neo t5 mt5 clip mpnet""".split())
"""Families whose code makes the embedding without padding_idx=config.pad_token_id."""
USUAL: Mapping[str, int] = {
    **dict.fromkeys("olmo olmo2 olmo3 olmoe opt seed_oss roberta xlm-roberta camembert bart mbart m2m_100".split(), 1),
    "apertus": 3, "helium": 3, "ministral3": 11, "phi3": 32_000, "glm": 151_329, "glm4": 151_329, "smollm3": 128_004,
    "whisper": 50_256, "marian": 58_100, "modernbert": 50_283,
}
"""transformers' defaults above 0, where the file is silent."""


def check(kind: str, given: Mapping[str, Any], vocabulary: Any, file: str) -> None:
    """Refuse a padding token beyond the vocabulary. vocabulary: of the class's defaults. Errors: Impossible."""
    part, place = given, ""
    if isinstance(text := given.get("text_config"), dict):
        kind, part, place = str(text.get("model_type")), text, "text_config."
        vocabulary = None
    if kind in UNPADDED:
        return
    pad, size = part.get("pad_token_id", USUAL.get(kind)), part.get("vocab_size", vocabulary)
    if not all(isinstance(value, int) and not isinstance(value, (bool, NotFinite)) for value in (pad, size)):
        return
    if not -size <= pad < size:
        default = "" if "pad_token_id" in part else " (the default)"
        raise Impossible(f"{file}: {place}pad_token_id {printable(pad, 24)}{default} is no token of a vocabulary of "
                         f"{size:,}, and transformers builds no such model; give one below {size:,}, or null")
