"""GLM-4-0414, as transformers 5.24 runs it (models/glm4/modeling_glm4.py): GLM with a norm behind each branch, too."""

from __future__ import annotations

from peakmem.architectures import glm

MIRRORS = "transformers 5.24.0 models/glm4/modeling_glm4.py"

define = glm.define
forward = glm.forward
