"""The rows of `models.presets`: one model each."""

from __future__ import annotations

from typing import Any

from peakmem.tables.models import AIC, DEFAULT, HUB, MLC, Preset, decoder, encoder, gpt2, neox, opt

L3 = 128256  # vocabulary of Llama 3
LONGROPE: dict[str, Any] = {"rope_scaling": {"type": "longrope"}}
NO_WINDOW: dict[str, Any] = {"sliding_window": None}


def qwen3_moe(layers: int, hidden: int, heads: int, expert: int) -> dict[str, Any]:
    """Qwen3-MoE: every feed-forward is 128 experts, 8 of them for each token."""
    config = dict(decoder("qwen3_moe", layers, hidden, heads, 4, 0, 151936, head_dim=128))
    del config["intermediate_size"]
    return {**config, "moe_intermediate_size": expert, "norm_topk_prob": True}


ROWS: tuple[Preset, ...] = (
    Preset("llama-2-7b", decoder("llama", 32, 4096, 32, 32, 11008, 32000), 6738415616, f"{MLC} [llama2_7b]",
           ("vicuna-7b",)),
    Preset("llama-2-13b", decoder("llama", 40, 5120, 40, 40, 13824, 32000), 13015864320, f"{MLC} [llama2_13b]",
           ("vicuna-13b",)),
    Preset("llama-2-70b", decoder("llama", 80, 8192, 64, 8, 28672, 32000), 68976648192, f"{MLC} [llama2_70b]"),
    Preset("llama-3.1-8b", decoder("llama", 32, 4096, 32, 8, 14336, L3), 8030261248,
           f"{AIC} meta-llama--Meta-Llama-3.1-8B", ("llama-8b",)),
    Preset("llama-3.1-70b", decoder("llama", 80, 8192, 64, 8, 28672, L3), 70553706496,
           f"{AIC} meta-llama--Meta-Llama-3.1-70B", ("llama-70b",)),
    Preset("llama-3.1-405b", decoder("llama", 126, 16384, 128, 8, 53248, L3), 405853388800,
           f"{AIC} meta-llama--Meta-Llama-3.1-405B", ("llama-405b",)),
    Preset("llama-3.2-1b", decoder("llama", 16, 2048, 32, 8, 8192, L3, True), 1235814400, f"{MLC} [llama3_2_1b]"),
    Preset("llama-3.2-3b", decoder("llama", 28, 3072, 24, 8, 8192, L3, True), 3212749824, f"{MLC} [llama3_2_3b]"),
    Preset("tinyllama-1.1b", decoder("llama", 22, 2048, 32, 4, 5632, 32000), 1100048384,
           f"{MLC} [tinyllama_1b_chat_v1.0]", ("tinyllama", "tinyllama-1.1b-chat-v1.0", "tinyllama-v1.1")),
    Preset("mistral-7b-v0.1", decoder("mistral", 32, 4096, 32, 8, 14336, 32000, sliding_window=4096), 7241732096,
           f"{MLC} [mistral_7b]", ("mistral-7b",)),
    Preset("mistral-7b-v0.3", decoder("mistral", 32, 4096, 32, 8, 14336, 32768, **NO_WINDOW), 7248023552,
           f"{MLC} [mistral_7b_v03]"),
    Preset("mistral-nemo-12b", decoder("mistral", 40, 5120, 32, 8, 14336, 131072, head_dim=128, **NO_WINDOW),
           12247782400, f"{HUB}mistralai/Mistral-Nemo-Base-2407", ("mistral-nemo-base-2407", "mistral-nemo")),
    Preset("mixtral-8x7b", decoder("mixtral", 32, 4096, 32, 8, 14336, 32000), 46702792704,
           f"{AIC} mistralai--Mixtral-8x7B-v0.1", ("mixtral", "mixtral-8x7b-v0.1")),
    Preset("mixtral-8x22b", decoder("mixtral", 56, 6144, 48, 8, 16384, 32768), 140630071296,
           f"{HUB}mistralai/Mixtral-8x22B-v0.3", ("mixtral-8x22b-v0.3",)),
    Preset("qwen2-0.5b", decoder("qwen2", 24, 896, 14, 2, 4864, 151936, True), 494032768, f"{MLC} [qwen2_0_5b]"),
    Preset("qwen2-1.5b", decoder("qwen2", 28, 1536, 12, 2, 8960, 151936, True), 1543714304, f"{MLC} [qwen2_1_5b]"),
    Preset("qwen2-7b", decoder("qwen2", 28, 3584, 28, 4, 18944, 152064), 7615616512, f"{MLC} [qwen2_7b]"),
    Preset("qwen2.5-3b", decoder("qwen2", 36, 2048, 16, 2, 11008, 151936, True), 3085938688, f"{MLC} [qwen2.5_3b]"),
    Preset("qwen2.5-14b", decoder("qwen2", 48, 5120, 40, 8, 13824, 152064), 14770033664, f"{HUB}Qwen/Qwen2.5-14B"),
    Preset("qwen2.5-32b", decoder("qwen2", 64, 5120, 40, 8, 27648, 152064), 32763876352, f"{HUB}Qwen/Qwen2.5-32B"),
    Preset("qwen2.5-72b", decoder("qwen2", 80, 8192, 64, 8, 29568, 152064), 72706203648, f"{HUB}Qwen/Qwen2.5-72B"),
    Preset("qwen3-0.6b", decoder("qwen3", 28, 1024, 16, 8, 3072, 151936, True), 596049920,
           f"{AIC} Qwen--Qwen3-0.6B"),
    Preset("qwen3-1.7b", decoder("qwen3", 28, 2048, 16, 8, 6144, 151936, True), 1720574976, f"{MLC} [qwen3_1.7b]"),
    Preset("qwen3-4b", decoder("qwen3", 36, 2560, 32, 8, 9728, 151936, True), 4022468096, f"{MLC} [qwen3_4b]"),
    Preset("qwen3-8b", decoder("qwen3", 36, 4096, 32, 8, 12288, 151936), 8190735360, f"{HUB}Qwen/Qwen3-8B"),
    Preset("qwen3-14b", decoder("qwen3", 40, 5120, 40, 8, 17408, 151936), 14768307200, f"{HUB}Qwen/Qwen3-14B"),
    Preset("qwen3-32b", decoder("qwen3", 64, 5120, 64, 8, 25600, 151936), 32762123264, f"{AIC} Qwen--Qwen3-32B"),
    Preset("qwen3-30b-a3b", qwen3_moe(48, 2048, 32, 768), 30532122624, f"{AIC} Qwen--Qwen3-30B-A3B",
           ("qwen3-30b", "qwen3-moe")),
    Preset("qwen3-235b-a22b", qwen3_moe(94, 4096, 64, 1536), 235093634560, f"{AIC} Qwen--Qwen3-235B-A22B-FP8",
           ("qwen3-235b",)),
    Preset("phi-3-mini", decoder("phi3", 32, 3072, 32, 32, 8192, 32064, sliding_window=2047), 3821079552,
           f"{MLC} [phi-3]", ("phi-3-mini-4k",)),
    Preset("phi-3.5-mini", decoder("phi3", 32, 3072, 32, 32, 8192, 32064, sliding_window=262144, **LONGROPE),
           3821079552, f"{MLC} [phi-3_5]"),
    Preset("phi-3-medium", decoder("phi3", 40, 5120, 40, 10, 17920, 32064, sliding_window=2047), 13960238080,
           f"{HUB}microsoft/Phi-3-medium-4k-instruct", ("phi-3-medium-4k",)),
    Preset("phi-4-mini", decoder("phi3", 32, 3072, 24, 8, 8192, 200064, True, sliding_window=262144,
                                 partial_rotary_factor=0.75, **LONGROPE), 3836021760, f"{MLC} [phi-4]"),
    Preset("phi-4", decoder("phi3", 40, 5120, 40, 10, 17920, 100352), 14659507200, f"{HUB}microsoft/phi-4"),
    Preset("gemma-2b", decoder("gemma", 18, 2048, 8, 1, 16384, 256000, True), 2506172416, f"{MLC} [gemma_2b]"),
    Preset("gemma-7b", decoder("gemma", 28, 3072, 16, 16, 24576, 256000, True), 8537680896, DEFAULT),
    Preset("gemma-2-2b", decoder("gemma2", 26, 2304, 8, 4, 9216, 256000, True), 2614341888, f"{MLC} [gemma2_2b]",
           ("gemma2-2b",)),
    Preset("gemma-2-9b", decoder("gemma2", 42, 3584, 16, 8, 14336, 256000, True), 9241705984, f"{MLC} [gemma2_9b]",
           ("gemma2-9b",)),
    Preset("gemma-2-27b", decoder("gemma2", 46, 4608, 32, 16, 36864, 256000, True, head_dim=128), 27227128320,
           f"{MLC} [gemma2_27b]", ("gemma2-27b",)),
    Preset("gemma-3-1b", decoder("gemma3_text", 26, 1152, 4, 1, 6912, 262144, True, sliding_window=512), 999885952,
           f"{MLC} [gemma3_1b_it]", ("gemma3-1b",)),
    Preset("gpt2", gpt2(12, 768, 12), 124439808, f"{MLC} [gpt2]", ("gpt2-small", "gpt-2")),
    Preset("gpt2-medium", gpt2(24, 1024, 16), 354823168, f"{MLC} [gpt2_medium]"),
    Preset("gpt2-large", gpt2(36, 1280, 20), 774030080, f"{HUB}openai-community/gpt2-large"),
    Preset("gpt2-xl", gpt2(48, 1600, 25), 1557611200, f"{HUB}openai-community/gpt2-xl"),
    Preset("pythia-160m", neox(12, 768, 12), 162322944, f"{HUB}EleutherAI/pythia-160m"),
    Preset("pythia-410m", neox(24, 1024, 16), 405334016, f"{HUB}EleutherAI/pythia-410m"),
    Preset("pythia-1.4b", neox(24, 2048, 16), 1414647808, f"{HUB}EleutherAI/pythia-1.4b"),
    Preset("pythia-6.9b", neox(32, 4096, 32, 50432), 6857302016, f"{HUB}EleutherAI/pythia-6.9b"),
    Preset("gpt-neox-20b", neox(44, 6144, 64, 50432), 20554567680, DEFAULT, ("gptneox-20b",)),
    Preset("redpajama-3b", neox(32, 2560, 32, 50432, use_parallel_residual=False, rotary_pct=1.0), 2775864320,
           f"{MLC} [redpajama_3b_v1]"),
    Preset("opt-125m", opt(12, 768, 12), 125239296, DEFAULT),
    Preset("opt-350m", opt(24, 1024, 16, word_embed_proj_dim=512, do_layer_norm_before=False), 331196416,
           f"{HUB}facebook/opt-350m"),
    Preset("opt-1.3b", opt(24, 2048, 32), 1315758080, f"{HUB}facebook/opt-1.3b"),
    Preset("opt-6.7b", opt(32, 4096, 32), 6658473984, f"{HUB}facebook/opt-6.7b"),
    Preset("bert-base", encoder("bert", 12, 768, 12), 109514298, f"{MLC} [snowflake-arctic-embed-m]",
           ("bert-base-uncased", "bert")),
    Preset("bert-large", encoder("bert", 24, 1024, 16), 335174458, f"{HUB}google-bert/bert-large-uncased",
           ("bert-large-uncased",)),
    Preset("vit-base", encoder("vit", 12, 768, 12, num_labels=1000), 86567656, DEFAULT,
           ("vit-base-patch16-224", "vit-b-16", "vit")),
    Preset("vit-large", encoder("vit", 24, 1024, 16, num_labels=1000), 304326632,
           f"{HUB}google/vit-large-patch16-224", ("vit-large-patch16-224", "vit-l-16")),
    Preset("vit-huge", encoder("vit", 32, 1280, 16, patch_size=14, num_labels=1000), 632045800,
           "Dosovitskiy et al. 2021, table 1, https://arxiv.org/abs/2010.11929, with 14 × 14 patches",
           ("vit-huge-patch14-224", "vit-h-14")),
)
