"""Forward code of every architecture, in the form in which a real implementation runs it."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from peakmem.errors import Impossible, UnknownName

CODE = {
    ("llama", "transformers"): "llama",
    ("llama", "torchtitan"): "llama_fused",
    ("llama", "fused"): "llama_fused",
    **{(family, "litgpt"): "litgpt" for family in ("llama", "mistral", "gemma", "gemma2", "gpt_neox", "phi", "falcon")},
    ("granite", "transformers"): "granite",
    ("mistral", "transformers"): "mistral",
    ("qwen2", "transformers"): "qwen2",
    ("qwen3", "transformers"): "qwen3",
    ("phi3", "transformers"): "phi3",
    ("gemma", "transformers"): "gemma",
    ("gemma2", "transformers"): "gemma2",
    ("gemma3_text", "transformers"): "gemma3",
    ("gemma3", "transformers"): "gemma3_vision",
    ("paligemma", "transformers"): "paligemma",
    ("gemma4_text", "transformers"): "gemma4",
    ("gemma4", "transformers"): "gemma4_vision",
    ("gpt2", "transformers"): "gpt2",
    ("gpt2", "paper"): "paper",
    ("opt", "transformers"): "opt",
    ("gpt_neox", "transformers"): "gpt_neox",
    ("gpt_neo", "transformers"): "gpt_neo",
    ("olmo2", "transformers"): "olmo2",
    ("stablelm", "transformers"): "stablelm",
    ("falcon", "transformers"): "falcon",
    ("bloom", "transformers"): "bloom",
    ("phi", "transformers"): "phi",
    ("cohere", "transformers"): "cohere",
    ("starcoder2", "transformers"): "starcoder2",
    ("gpt_bigcode", "transformers"): "gpt_bigcode",
    ("gptj", "transformers"): "gptj",
    ("codegen", "transformers"): "codegen",
    ("mpt", "transformers"): "mpt",
    ("deepseek_v2", "transformers"): "deepseek_v2",
    ("deepseek_v3", "transformers"): "deepseek_v3",
    ("deepseek_v4", "transformers"): "deepseek_v4",
    ("glm_moe_dsa", "transformers"): "glm_moe_dsa",
    ("gpt_oss", "transformers"): "gpt_oss",
    ("llama4_text", "transformers"): "llama4",
    ("qwen3_next", "transformers"): "qwen3_next",
    ("qwen3_5_text", "transformers"): "qwen3_5",
    ("qwen3_5", "transformers"): "qwen3_5_vision",
    ("mamba", "transformers"): "mamba",
    ("mamba2", "transformers"): "mamba2",
    ("jamba", "transformers"): "jamba",
    ("nemotron_h", "transformers"): "nemotron_h",
    ("granitemoehybrid", "transformers"): "granitemoehybrid",
    **{(name, "transformers"): name for name in ("bamba", "falcon_h1", "falcon_mamba", "zamba2")},
    **{(name, "transformers"): "lfm2" for name in ("lfm2", "lfm2_moe")},
    ("nemotron-nas", "transformers"): "nemotron_nas",
    **{(name, "transformers"): name for name in (
        "apertus", "ministral", "seed_oss", "glm", "glm4", "olmo", "olmo3", "olmoe", "smollm3", "minimax_m2",
        "qwen2_moe",
        "glm4_moe", "glm4_moe_lite", "mimo_v2_flash", "arcee", "cohere2", "dots1", "ernie4_5", "exaone4", "granitemoe",
        "helium", "hunyuan_v1_dense", "hunyuan_v1_moe", "ministral3", "nemotron", "ernie4_5_moe")},
    ("qwen3_5_moe_text", "transformers"): "qwen3_5_moe",
    **{(name, "transformers"): name for name in ("distilbert", "electra", "modernbert", "mpnet")},
    ("iquestcoder", "transformers"): "llama",
    ("cwm", "transformers"): "ministral",
    ("bert", "transformers"): "bert",
    ("vit", "transformers"): "vit",
    ("deit", "transformers"): "deit",
    **{(name, "transformers"): "dinov2" for name in ("dinov2", "dinov2_with_registers")},
    **{(name, "transformers"): "convnext" for name in ("convnext", "convnextv2")},
    ("roberta", "transformers"): "roberta",
    **{(name, "transformers"): "xlm_roberta" for name in ("xlm-roberta", "camembert")},
    ("t5", "transformers"): "t5",
    ("mt5", "transformers"): "t5",
    ("deberta-v2", "transformers"): "deberta_v2",
    **{(name, "transformers"): name for name in ("bart", "mbart", "marian", "pegasus", "m2m_100")},
    ("resnet", "transformers"): "resnet",
    ("unet_2d_condition", "transformers"): "unet_2d",
    ("dit", "transformers"): "dit",
    ("clip", "transformers"): "clip",
    ("siglip", "transformers"): "siglip_pairs",
    ("llava", "transformers"): "llava",
    ("internvl", "transformers"): "internvl",
    ("mistral3", "transformers"): "mistral3",
    **{(name, "transformers"): "idefics3" for name in ("idefics3", "smolvlm")},
    ("qwen2_vl", "transformers"): "qwen_vl",
    ("qwen2_5_vl", "transformers"): "qwen_vl",
    ("qwen3_vl", "transformers"): "qwen_vl",
    ("qwen3_vl_moe", "transformers"): "qwen_vl",
    ("whisper", "transformers"): "whisper",
    ("mixtral", "transformers"): "mixtral",
    ("qwen3_moe", "transformers"): "qwen3_moe",
    ("minimax_m2", "transformers"): "minimax_m2",
    ("three_layers", "transformers"): "three_layers",
}


def code_of(architecture: str, implementation: str = "transformers") -> ModuleType:
    """The module that holds an architecture's parameters and forward code."""
    name = CODE.get((architecture, implementation))
    known = sorted(i for a, i in CODE if a == architecture)
    if name is None and known:
        raise Impossible(f"--implementation {implementation}: {architecture} is known in {', '.join(known)}; give that")
    if name is None:
        raise UnknownName("architecture", architecture, {a for a, _ in CODE})
    return import_module(f"peakmem.architectures.{name}")
