"""Presets of families whose class has one released model's sizes as its defaults, and EXAONE 4."""

from __future__ import annotations

from peakmem.tables.models import DEFAULT, Preset, decoder


def row(name: str, kind: str, parameters: int, checkpoint: str, *aliases: str) -> Preset:
    """A model that the class describes where a file is silent; checkpoint: what its documentation names."""
    return Preset(name, {"model_type": kind}, parameters, f"{DEFAULT}, which name {checkpoint}", aliases)


ROWS: tuple[Preset, ...] = (
    row("bart-large", "bart", 406291456, "facebook/bart-large", "bart"),
    row("m2m100-418m", "m2m_100", 483905536, "facebook/m2m100_418M", "m2m100"),
    row("distilbert-base", "distilbert", 66985530, "distilbert-base-uncased", "distilbert", "distilbert-base-uncased"),
    row("mpnet-base", "mpnet", 109516991, "microsoft/mpnet-base", "mpnet"),
    row("modernbert-base", "modernbert", 149655232, "answerdotai/ModernBERT-base", "modernbert"),
    row("gpt-neo-1.3b", "gpt_neo", 1315575808, "EleutherAI/gpt-neo-1.3B"),
    row("ernie-4.5-0.3b", "ernie4_5", 360748032, "baidu/ERNIE-4.5-0.3B-PT", "ernie-4.5-0.3b-pt"),
    row("ernie-4.5-21b-a3b", "ernie4_5_moe", 21825437888, "baidu/ERNIE-4.5-21B-A3B-PT", "ernie-4.5-21b-a3b-pt"),
    row("qwen3.5-35b-a3b", "qwen3_5_moe_text", 34660610688, "Qwen/Qwen3.5-35B-A3B, its text part"),
    row("cwm-32b", "cwm", 32581097472, "facebook/cwm", "cwm"),
    row("iquest-coder-40b", "iquestcoder", 39794283520, "IQuestLab/IQuest-Coder-V1-40B-Instruct",
        "iquest-coder-v1-40b"),
    row("ministral-3-8b", "ministral3", 8489553920, "mistralai/Ministral-3-8B-Base-2512, its text part"),
    row("helium-1-2b", "helium", 2172643840, "kyutai/helium-1-preview", "helium"),
    Preset("exaone-4.0-32b", decoder("exaone4", 64, 5120, 40, 8, 27392, 102400, head_dim=128), 32003216384,
           "NVIDIA/TensorRT-LLM tests/unittest/_torch/modeling/test_modeling_exaone4.py, with all 64 layers",
           ("exaone-4-32b",)),
)
