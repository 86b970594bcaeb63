"""GLM-4.7-Flash, as transformers 5.24 runs it (models/glm4_moe_lite/modeling_glm4_moe_lite.py): DeepSeek-V3's code."""

from __future__ import annotations

from peakmem.architectures import deepseek_v3

MIRRORS = "transformers 5.24.0 models/glm4_moe_lite/modeling_glm4_moe_lite.py, experts implementation grouped_mm"

define = deepseek_v3.define
forward = deepseek_v3.forward
