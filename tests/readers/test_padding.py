"""A padding token beyond the vocabulary, against transformers: whoever builds such a model is refused."""

from __future__ import annotations

from typing import Any

import pytest

from peakmem.errors import Impossible
from peakmem.readers.hf_config import FAMILIES, from_config
from peakmem.readers.padding import UNPADDED, USUAL

TINY: dict[str, Any] = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 64,
                        "vocab_size": 90}
CASES: list[tuple[str, dict[str, Any]]] = [
    *[(kind, {"num_key_value_heads": 4}) for kind in ("llama", "qwen2", "gemma", "phi3", "olmo2")],
    *[(kind, {}) for kind in ("bert", "electra", "modernbert", "gpt_neox", "falcon", "bloom")],
    ("opt", {"word_embed_proj_dim": 64, "ffn_dim": 64}),
    ("gpt2", {"n_embd": 64, "n_layer": 1, "n_head": 4}),
    ("bart", {"d_model": 64, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4,
              "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}),
]
PADS = (-91, -90, -1, 0, 89, 90, None)


@pytest.mark.parametrize(("kind", "more"), CASES, ids=[case[0] for case in CASES])
def test_refused_where_transformers_refuses(kind: str, more: dict[str, Any]) -> None:
    transformers = pytest.importorskip("transformers")
    torch = pytest.importorskip("torch")
    for pad in (*PADS, "absent"):
        given = {"model_type": kind, **TINY, **more, "pad_token_id": pad}
        if pad == "absent":
            del given["pad_token_id"]
        try:
            with torch.device("meta"):
                made = transformers.CONFIG_MAPPING[kind](**{k: v for k, v in given.items() if k != "model_type"})
                transformers.AutoModel.from_config(made)
            builds = True
        except (AssertionError, ValueError):
            builds = False
        try:
            from_config(given)
            read = True
        except Impossible as error:
            read, told = False, str(error)
            assert "pad_token_id" in told and "below 90, or null" in told
        assert read == builds, (kind, pad)


def test_defaults_are_those_of_transformers() -> None:
    transformers = pytest.importorskip("transformers")
    for kind in set(FAMILIES) & set(transformers.CONFIG_MAPPING) - UNPADDED:
        config = transformers.CONFIG_MAPPING[kind]()
        if hasattr(config, "vocab_size"):
            assert max(getattr(config, "pad_token_id", None) or 0, 0) == USUAL.get(kind, 0), kind


def test_the_text_part_has_its_own() -> None:
    nested = {"model_type": "gemma3", "text_config": {"vocab_size": 1000, "pad_token_id": 1000}}
    with pytest.raises(Impossible, match="pad_token_id 1000"):
        from_config(nested)
    assert from_config(nested | {"pad_token_id": 5000, "text_config": {"vocab_size": 1000, "pad_token_id": 0}})
