"""DeepSeek-V2 and V2-Lite, as transformers 5.24 runs them (models/deepseek_v2/modeling_deepseek_v2.py).

DeepSeek-V3's layers with complex rotary positions and a softmax in the router.
"""

from __future__ import annotations

from peakmem.architectures import deepseek_v3
from peakmem.architectures.mixtral import moe_lm
from peakmem.estimate.complex_rotary import complex_table, rotate_complex
from peakmem.estimate.routers import softmax_router
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor

MIRRORS = "transformers 5.24.0 models/deepseek_v2/modeling_deepseek_v2.py, experts implementation grouped_mm"

define = deepseek_v3.define


def forward(m: Structure, ids: Tensor) -> Tensor:
    return moe_lm(m, lambda: deepseek_v3.model(m, ids, table, turn, softmax_router))


def table(dtype: str) -> tuple[Tensor, ...]:
    """One complex number for each position and pair, in fp32 whatever the model has."""
    return (complex_table("dr/2"),)


def turn(m: Structure, q: Tensor, k: Tensor, turned: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
    """apply_rotary_emb: all in fp32, then cast back."""
    frequencies, = turned
    return rotate_complex(q, k, frequencies)
