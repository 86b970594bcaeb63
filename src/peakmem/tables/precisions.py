"""Precision recipes: which dtype weights, gradients, master weights and optimizer states have.

A row says what an engine holds; the engine's own tensors give the bytes. `per_parameter` is what people quote for
AdamW (two states), and a test adds it up from the other columns.
"""

from __future__ import annotations

from collections.abc import Mapping

from peakmem.errors import UnknownName
from peakmem.immutable import immutable

WIDTH: Mapping[str, int] = {"fp32": 4, "bf16": 2, "fp16": 2, "int64": 8, "int32": 4, "uint8": 1, "bool": 1}
"""Bytes per element of a dtype."""


@immutable
class Precision:
    """One recipe. Dtypes are keys of `WIDTH`; None: the recipe has no such thing."""

    name: str
    title: str
    weights: str  # dtype of the module's parameters and buffers
    autocast: str | None  # dtype of torch.autocast around the forward; its weight copies live until backward
    gradients: str  # dtype of `.grad`
    gradient_buffer: str | None  # dtype of a second, resident gradient buffer, alive all the time
    master: str | None  # dtype of the optimizer's own copy of the weights
    states: str  # dtype of the optimizer states, unless --state-dtype says otherwise
    fused_update: bool  # the optimizer reads gradients and master and updates in one pass: no step temporary
    note: str  # what other engines would hold under the same word
    source: str

    def per_parameter(self) -> dict[str, int]:
        """Bytes per parameter under AdamW, by part; resident bytes, without autocast's copies."""
        gradient = self.gradient_buffer or self.gradients
        return {
            "weight": WIDTH[self.weights],
            "gradient": WIDTH[gradient],
            "master": WIDTH[self.master] if self.master else 0,
            "states": 2 * WIDTH[self.states],
        }

    def total(self) -> str:
        """The sum as it is shown: "16", or "16 + up to 2" where autocast adds weight copies."""
        total = str(sum(self.per_parameter().values()))
        return f"{total} + up to {WIDTH[self.autocast]}" if self.autocast else total


_AMP = "torch 2.13 autocast: https://docs.pytorch.org/docs/2.13/amp.html"
_COPIES = ("autocast adds a 16-bit copy of every weight that meets an autocast operation, from its first use until "
           "its layer's backward")

PRECISIONS: Mapping[str, Precision] = {row.name: row for row in (
    Precision(
        "mixed", "bf16 weights and gradients, fp32 master weights and states", "bf16", None, "bf16", None, "fp32",
        "fp32", True,
        "the optimizer holds fp32 master weights and reads bf16 gradients in one fused pass; DeepSpeed holds a "
        "flat copy of all bf16 gradients during the step (2 bytes per parameter more), Megatron keeps fp32 "
        "gradients all the time (18 bytes: --precision megatron)",
        "ZeRO, Rajbhandari et al. 2020, section 3.1: 2 + 2 + 12 bytes, https://arxiv.org/abs/1910.02054",
    ),
    Precision("amp-bf16", "fp32 weights, autocast to bf16", "fp32", "bf16", "fp32", None, None, "fp32", False,
              _COPIES, _AMP),
    Precision("amp-fp16", "fp32 weights, autocast to fp16, gradient scaling", "fp32", "fp16", "fp32", None, None,
              "fp32", False, _COPIES + "; GradScaler itself holds a few scalars and unscales in place", _AMP),
    Precision("bf16", "everything bf16", "bf16", None, "bf16", None, None, "bf16", False,
              "no master weights: optimizer states follow the parameter's dtype",
              "torch 2.13 optim/adam.py: states are zeros_like(parameter)"),
    Precision("fp16", "everything fp16", "fp16", None, "fp16", None, None, "fp16", False,
              "no master weights: optimizer states follow the parameter's dtype",
              "torch 2.13 optim/adam.py: states are zeros_like(parameter)"),
    Precision("fp32", "everything fp32", "fp32", None, "fp32", None, None, "fp32", False, "",
              "torch 2.13 optim/adam.py: states are zeros_like(parameter)"),
    Precision("megatron", "bf16 weights, resident fp32 gradients, fp32 master weights and states", "bf16", None,
              "bf16", "fp32", "fp32", "fp32", True,
              "each bf16 gradient is added to a fp32 buffer that is resident all the time, then freed",
              "Megatron-LM core/distributed and core/optimizer, `18 bytes` without the distributed optimizer: "
              "https://github.com/NVIDIA/Megatron-LM/blob/main/docs/source/api-guide/dist_optimizer.md"),
)}


def find_precision(name: str) -> Precision:
    """The row of a recipe.

    Errors: UnknownName.
    """
    if name not in PRECISIONS:
        raise UnknownName("precision", name, PRECISIONS, "peakmem list precisions", about=["precision"])
    return PRECISIONS[name]
