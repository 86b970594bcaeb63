"""Presets of DeepSeek, Kimi, gpt-oss, Llama 4, Qwen3-Next, Mamba 1 and 2, Jamba and Nemotron-H: one model each."""

from __future__ import annotations

from typing import Any

from peakmem.tables.models import AIC, DEFAULT, HUB, Preset, decoder

YARN: dict[str, Any] = {"rope_scaling": {"type": "yarn", "factor": 40}}


def latent(kind: str, layers: int, hidden: int, heads: int, feed_forward: int, expert: int, routed: int,
           vocabulary: int, **more: Any) -> dict[str, Any]:
    """DeepSeek's attention and experts."""
    config = dict(decoder(kind, layers, hidden, heads, heads, feed_forward, vocabulary))
    return {**config, "moe_intermediate_size": expert, "n_routed_experts": routed, **YARN, **more}


def gpt_oss(layers: int, experts: int) -> dict[str, Any]:
    """gpt-oss: its two sizes differ in layers and experts."""
    return {"model_type": "gpt_oss", "num_hidden_layers": layers, "num_local_experts": experts}


def mamba(layers: int, hidden: int) -> dict[str, Any]:
    """Mamba 1 of state-spaces."""
    return {"model_type": "mamba", "num_hidden_layers": layers, "hidden_size": hidden, "vocab_size": 50280}


ROWS: tuple[Preset, ...] = (
    Preset("deepseek-v2-lite", latent("deepseek_v2", 27, 2048, 16, 10944, 1408, 64, 102400, q_lora_rank=None,
                                      first_k_dense_replace=1, num_experts_per_tok=6, n_shared_experts=2),
           15706484224, f"{HUB}deepseek-ai/DeepSeek-V2-Lite", ("deepseek-coder-v2-lite",)),
    Preset("deepseek-v2", latent("deepseek_v2", 60, 5120, 128, 12288, 1536, 160, 102400, first_k_dense_replace=1,
                                 num_experts_per_tok=6, n_shared_experts=2, n_group=8, topk_group=3,
                                 topk_method="group_limited_greedy"),
           235741434880, f"{HUB}deepseek-ai/DeepSeek-V2", ("deepseek-v2.5", "deepseek-coder-v2")),
    Preset("deepseek-v3", latent("deepseek_v3", 61, 7168, 128, 18432, 2048, 256, 129280), 671026404352,
           f"{AIC} deepseek-ai--DeepSeek-V3", ("deepseek-r1", "deepseek-v3.1", "deepseek-v3-0324")),
    Preset("kimi-k2", latent("deepseek_v3", 61, 7168, 64, 18432, 2048, 384, 163840, first_k_dense_replace=1, n_group=1,
                             topk_group=1), 1026408209408, f"{AIC} moonshotai--Kimi-K2-Instruct"),
    Preset("gpt-oss-20b", gpt_oss(24, 32), 20914757184, f"{AIC} openai--gpt-oss-20b"),
    Preset("gpt-oss-120b", gpt_oss(36, 128), 116829156672, DEFAULT),
    Preset("llama-4-scout", {"model_type": "llama4_text"}, 107769861120,
           f"{AIC} meta-llama--Llama-4-Scout-17B-16E-Instruct", ("llama-4-scout-17b-16e",)),
    Preset("llama-4-maverick", {"model_type": "llama4_text", "num_local_experts": 128, "interleave_moe_layer_step": 2,
                                "use_qk_norm": False}, 400711848960, f"{HUB}meta-llama/Llama-4-Maverick-17B-128E",
           ("llama-4-maverick-17b-128e",)),
    Preset("qwen3-next-80b-a3b", {"model_type": "qwen3_next", "intermediate_size": 5120}, 79674391296,
           "Qwen/Qwen3-Next-80B-A3B in ai-dynamo/aiconfigurator 1b7cfb1", ("qwen3-next",)),
    Preset("mamba-130m", mamba(24, 768), 129135360, f"{HUB}state-spaces/mamba-130m-hf"),
    Preset("mamba-370m", mamba(48, 1024), 371516416, f"{HUB}state-spaces/mamba-370m-hf"),
    Preset("mamba-790m", mamba(48, 1536), 793204224, f"{HUB}state-spaces/mamba-790m-hf"),
    Preset("mamba-1.4b", mamba(48, 2048), 1372178432, f"{HUB}state-spaces/mamba-1.4b-hf"),
    Preset("mamba-2.8b", mamba(64, 2560), 2768345600, f"{HUB}state-spaces/mamba-2.8b-hf"),
    Preset("mamba-codestral-7b", {"model_type": "mamba2"}, 7285403648,
           f"{DEFAULT}; as many parameters as mistral.ai/news/codestral-mamba gives", ("mamba-codestral-7b-v0.1",)),
    Preset("jamba-1.5-mini", {"model_type": "jamba"}, 51570323328, f"{HUB}ai21labs/AI21-Jamba-1.5-Mini",
           ("jamba-v0.1", "ai21-jamba-1.5-mini", "jamba")),
)
