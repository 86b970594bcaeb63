"""Further rows of `models.presets`: older and newer kin of Llama, Qwen, Mistral and Gemma, and families like them."""

from __future__ import annotations

from typing import Any

from peakmem.tables.models import DEFAULT, HUB, Preset, decoder

L3 = 128256  # vocabulary of Llama 3
LLAMA3: dict[str, Any] = {"max_position_embeddings": 8192}
WIDE: dict[str, Any] = {"head_dim": 128}


def gemma3(layers: int, hidden: int, heads: int, kv: int, feed_forward: int, vocabulary: int = 262208,
           window: int = 1024, **more: Any) -> Any:
    """A Gemma 3, its text part."""
    return decoder("gemma3_text", layers, hidden, heads, kv, feed_forward, vocabulary, True, sliding_window=window,
                   **more)


def glm4_moe(layers: int, hidden: int, feed_forward: int, expert: int, experts: int, dense: int, norm: bool) -> Any:
    """A GLM-4.5: 96 heads, 8 of many experts."""
    return decoder("glm4_moe", layers, hidden, 96, 8, feed_forward, 151552, moe_intermediate_size=expert,
                   n_routed_experts=experts, first_k_dense_replace=dense, use_qk_norm=norm, attention_bias=True, **WIDE)


def qwen2_moe(layers: int, hidden: int, heads: int, kv: int, expert: int, shared: int, experts: int,
              chosen: int) -> Any:
    """A Qwen2-MoE: every feed-forward is experts and a shared one."""
    config = dict(decoder("qwen2_moe", layers, hidden, heads, kv, 0, 151936))
    del config["intermediate_size"]
    return {**config, "moe_intermediate_size": expert, "shared_expert_intermediate_size": shared,
            "num_experts": experts, "num_experts_per_tok": chosen}


ROWS: tuple[Preset, ...] = (
    Preset("llama-7b", decoder("llama", 32, 4096, 32, 32, 11008, 32000), 6738415616,
           "Touvron et al. 2023, https://arxiv.org/abs/2302.13971, table 2", ("llama-1-7b", "alpaca-7b")),
    Preset("llama-13b", decoder("llama", 40, 5120, 40, 40, 13824, 32000), 13015864320,
           "Touvron et al. 2023, https://arxiv.org/abs/2302.13971, table 2", ("llama-1-13b",)),
    Preset("llama-30b", decoder("llama", 60, 6656, 52, 52, 17920, 32000), 32528943616, f"{HUB}huggyllama/llama-30b",
           ("llama-33b", "llama-1-30b")),
    Preset("llama-65b", decoder("llama", 80, 8192, 64, 64, 22016, 32000), 65285660672, f"{HUB}huggyllama/llama-65b",
           ("llama-1-65b",)),
    Preset("llama-3-8b", decoder("llama", 32, 4096, 32, 8, 14336, L3, **LLAMA3), 8030261248,
           f"{HUB}meta-llama/Meta-Llama-3-8B",
           ("llama3-8b",)),
    Preset("llama-3-70b", decoder("llama", 80, 8192, 64, 8, 28672, L3, **LLAMA3), 70553706496,
           f"{HUB}meta-llama/Meta-Llama-3-70B"),
    Preset("llama-3.3-70b", decoder("llama", 80, 8192, 64, 8, 28672, L3), 70553706496,
           f"{HUB}meta-llama/Llama-3.3-70B-Instruct"),
    Preset("codellama-7b", decoder("llama", 32, 4096, 32, 32, 11008, 32016), 6738546688,
           f"{HUB}codellama/CodeLlama-7b-hf"),
    Preset("codellama-13b", decoder("llama", 40, 5120, 40, 40, 13824, 32016), 13016028160,
           f"{HUB}codellama/CodeLlama-13b-hf"),
    Preset("codellama-34b", decoder("llama", 48, 8192, 64, 8, 22016, 32000), 33743970304,
           f"{HUB}codellama/CodeLlama-34b-hf"),
    Preset("yi-6b", decoder("llama", 32, 4096, 32, 4, 11008, 64000), 6061035520, f"{HUB}01-ai/Yi-6B", ("yi-1.5-6b",)),
    Preset("yi-34b", decoder("llama", 60, 7168, 56, 8, 20480, 64000), 34388917248,
           f"{HUB}01-ai/Yi-34B", ("yi-1.5-34b",)),
    Preset("deepseek-llm-7b", decoder("llama", 30, 4096, 32, 32, 11008, 102400), 6910365696,
           f"{HUB}deepseek-ai/deepseek-llm-7b-base"),
    Preset("deepseek-r1-distill-llama-8b", decoder("llama", 32, 4096, 32, 8, 14336, L3), 8030261248,
           f"{HUB}deepseek-ai/DeepSeek-R1-Distill-Llama-8B"),
    Preset("deepseek-r1-distill-qwen-7b", decoder("qwen2", 28, 3584, 28, 4, 18944, 152064), 7615616512,
           f"{HUB}deepseek-ai/DeepSeek-R1-Distill-Qwen-7B"),
    Preset("smollm2-135m", decoder("llama", 30, 576, 9, 3, 1536, 49152, True), 134515008,
           f"{HUB}HuggingFaceTB/SmolLM2-135M",
           ("smollm-135m",)),
    Preset("smollm2-360m", decoder("llama", 32, 960, 15, 5, 2560, 49152, True), 361821120,
           f"{HUB}HuggingFaceTB/SmolLM2-360M",
           ("smollm-360m",)),
    Preset("smollm2-1.7b", decoder("llama", 24, 2048, 32, 32, 8192, 49152, True), 1711376384,
           f"{HUB}HuggingFaceTB/SmolLM2-1.7B",
           ("smollm-1.7b",)),
    Preset("smollm3-3b", decoder("smollm3", 36, 2048, 16, 4, 11008, L3, True), 3075098624, DEFAULT, ("smollm3",)),
    Preset("granite-3.1-2b", decoder("granite", 40, 2048, 32, 8, 8192, 49155, True), 2533531648,
           f"{HUB}ibm-granite/granite-3.1-2b-base"),
    Preset("granite-3.1-8b", decoder("granite", 40, 4096, 32, 8, 12800, 49155, True), 8170848256,
           f"{HUB}ibm-granite/granite-3.1-8b-base"),
    Preset("mistral-7b-v0.2", decoder("mistral", 32, 4096, 32, 8, 14336, 32000, sliding_window=None), 7241732096,
           f"{HUB}mistralai/Mistral-7B-Instruct-v0.2"),
    Preset("mistral-small-24b", decoder("mistral", 40, 5120, 32, 8, 32768, 131072, sliding_window=None, **WIDE),
           23572403200, f"{HUB}mistralai/Mistral-Small-24B-Base-2501",
           ("mistral-small-24b-base-2501", "mistral-small")),
    Preset("ministral-8b", decoder("mistral", 36, 4096, 32, 8, 12288, 131072, sliding_window=32768, **WIDE), 8019808256,
           f"{HUB}mistralai/Ministral-8B-Instruct-2410", ("ministral-8b-instruct-2410",)),
    Preset("qwen2.5-0.5b", decoder("qwen2", 24, 896, 14, 2, 4864, 151936, True), 494032768, f"{HUB}Qwen/Qwen2.5-0.5B"),
    Preset("qwen2.5-1.5b", decoder("qwen2", 28, 1536, 12, 2, 8960, 151936, True), 1543714304,
           f"{HUB}Qwen/Qwen2.5-1.5B"),
    Preset("qwen2.5-7b", decoder("qwen2", 28, 3584, 28, 4, 18944, 152064), 7615616512, f"{HUB}Qwen/Qwen2.5-7B"),
    Preset("qwen1.5-moe-a2.7b", qwen2_moe(24, 2048, 16, 16, 1408, 5632, 60, 4), 14315784192,
           f"{HUB}Qwen/Qwen1.5-MoE-A2.7B"),
    Preset("qwen2-57b-a14b", qwen2_moe(28, 3584, 28, 4, 2560, 20480, 64, 8), 57408658944, f"{HUB}Qwen/Qwen2-57B-A14B"),
    Preset("gemma-3-270m", gemma3(18, 640, 4, 1, 2048, 262144, 512), 268098176, f"{HUB}google/gemma-3-270m",
           ("gemma3-270m",)),
    Preset("gemma-3-4b", gemma3(34, 2560, 8, 4, 10240), 3880263168,
           f"text part of {HUB}google/gemma-3-4b-it", ("gemma3-4b",)),
    Preset("gemma-3-12b", gemma3(48, 3840, 16, 8, 15360), 11766034176, f"text part of {HUB}google/gemma-3-12b-it",
           ("gemma3-12b",)),
    Preset("gemma-3-27b", gemma3(62, 5376, 32, 16, 21504, **WIDE), 27009346304,
           f"text part of {HUB}google/gemma-3-27b-it",
           ("gemma3-27b",)),
    Preset("glm-4-9b", decoder("glm", 40, 4096, 32, 2, 13696, 151552, **WIDE), 9399951360, DEFAULT, ("glm-4-9b-hf",)),
    Preset("glm-4-32b-0414", decoder("glm4", 61, 6144, 48, 2, 23040, 151552, attention_bias=False, **WIDE), 32566081536,
           f"{HUB}zai-org/GLM-4-32B-0414", ("glm-4-32b",)),
    Preset("glm-4.5-air", glm4_moe(46, 4096, 10944, 1408, 128, 1, False), 106852245504, f"{HUB}zai-org/GLM-4.5-Air"),
    Preset("glm-4.5", glm4_moe(92, 5120, 12288, 1536, 160, 3, True), 352797814784,
           f"{HUB}zai-org/GLM-4.5", ("glm-4.6", "glm-4.7")),
    Preset("olmo-1b", decoder("olmo", 16, 2048, 16, 16, 8192, 50304, True), 1176764416, f"{HUB}allenai/OLMo-1B-hf"),
    Preset("olmo-7b", decoder("olmo", 32, 4096, 32, 32, 11008, 50304), 6888095744, f"{HUB}allenai/OLMo-7B-hf"),
    Preset("olmo-3-7b", decoder("olmo3", 32, 4096, 32, 32, 11008, 100278), 7298011136, f"{HUB}allenai/Olmo-3-1025-7B"),
    Preset("olmo-3-32b", decoder("olmo3", 64, 5120, 40, 8, 27648, 100278), 32233522176,
           f"{HUB}allenai/Olmo-3-1125-32B"),
    Preset("olmoe-1b-7b", decoder("olmoe", 16, 2048, 16, 16, 1024, 50304), 6919161856, f"{HUB}allenai/OLMoE-1B-7B-0924",
           ("olmoe-1b-7b-0924",)),
    Preset("minimax-m2", decoder("minimax_m2", 62, 3072, 48, 8, 1536, 200064, rotary_dim=64, **WIDE), 228689748992,
           f"{HUB}MiniMaxAI/MiniMax-M2", ("minimax-m2.5",)),
    Preset("seed-oss-36b", decoder("seed_oss", 64, 5120, 80, 8, 27648, 155136, **WIDE), 36151104512,
           f"{HUB}ByteDance-Seed/Seed-OSS-36B-Instruct"),
)
