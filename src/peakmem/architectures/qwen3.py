"""Qwen3, as transformers 5.24 runs it (models/qwen3/modeling_qwen3.py): Qwen2 with norms on q and k."""

from peakmem.architectures.qwen2 import define, forward

MIRRORS = "transformers 5.24.0 models/qwen3/modeling_qwen3.py"

__all__ = ["MIRRORS", "define", "forward"]
