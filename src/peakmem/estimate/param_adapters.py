"""LoRA adapters on parameters that belong to no linear layer: peft's ParamWrapper, for routers and experts.

Source: peft 0.21.2, tuners/lora/layer.py, and torch/nn/utils/parametrize.py. While the wrapped module runs, its
parameter is `W + scaling·B·A`, a whole new tensor of W's size that lives until the module returns, and that its
product keeps for the backward. Registering the parametrization computes it once more, to check its shape.
"""

from __future__ import annotations

from typing import NamedTuple

from peakmem.estimate.layout import BYTES, flat
from peakmem.estimate.node import Node
from peakmem.estimate.ops import add, autocast, cast, scale
from peakmem.estimate.scratch import strided_operand
from peakmem.estimate.shapes import swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Parameter, Tensor, current
from peakmem.estimate.weights import has, weight

OLD_NAMES = {
    "gate": ("gate",),
    "gate_up_proj": ("w1", "w3", "gate_proj", "up_proj"),
    "down_proj": ("w2", "down_proj"),
}
"""What people call the parameters: the modules of transformers 4 (peft's utils/transformers_weight_conversion.py)."""

CONVERTED = ("mixtral", "qwen3_moe", "qwen3_next", "deepseek_v2", "deepseek_v3", "olmoe", "minimax_m2", "glm4_moe",
             "glm4_moe_lite", "glm_moe_dsa", "dots1", "ernie4_5_moe", "hunyuan_v1_moe")
"""Architectures whose modules of transformers 4 peft knows (_MODEL_TO_CONVERSION_PATTERN)."""


def adapts(m: Structure, parameter: str) -> bool:
    """Whether this parameter of a sparse layer gets an adapter."""
    return m.architecture in CONVERTED and any(pattern == "all-linear" or pattern in OLD_NAMES[parameter]
                                               for pattern in m.lora)


class Factors(NamedTuple):
    """What a wrapper holds while its module runs: W + scaling·left·right, expert by expert."""

    base: Parameter
    left: Tensor
    right: Tensor

    def folded(self) -> Tensor:
        """baddbmm(W, left, right, alpha=scaling), outside autocast; gradients are bmm, then times alpha."""
        n = Node("baddbmm", self.base, self.left, self.right)
        if n.needs(1):
            n.saves(self.right, f"gradient of the other factor of the adapter in {n.scope}")
        if n.needs(2):
            n.saves(self.left, f"gradient of the other factor of the adapter in {n.scope}")
            n.needs_scratch((BYTES[self.left.dtype], flat(self.left.dims)), "operand made dense")
        out = n.makes(self.base.dims, self.base.dtype, None, "weight with adapter")
        strided_operand(n, self.left)
        for i, x in ((1, self.left), (2, self.right)):
            n.gradient(i, temporaries=((x.dims, x.dtype),))
        return n.output(out)


class Sum(NamedTuple):
    """What a wrapper of a single expert holds: W, and scaling·B·A in W's dtype."""

    base: Parameter
    delta: Tensor

    def folded(self) -> Tensor:
        """W + delta."""
        return add(self.base, self.delta, "weight with adapter")


Wrapped = Factors | Sum
"""What lies behind a parametrization while its module runs."""


def expert_factors(wrapper: str, base: str, left: str, left_seen: str, right: str) -> Wrapped:
    """_activate_lora on 3-D weights. left: B as (out, rank, E); left_seen: as (E, out, rank); right: A by expert.

    A single expert is taken for a linear layer (get_delta_weight).
    """
    w = weight(base)
    a, b = weight(f"{wrapper}lora_A.default.weight"), weight(f"{wrapper}lora_B.default.weight")
    if "E" in current().ones:
        alone = Sum(w, cast(scale(low_rank(b, a)), w.dtype))
        alone.folded()
        return alone
    weight_a = view(a, right)
    weight_b = swap(view(b, left), left_seen)
    made = Factors(w, cast(weight_b, w.dtype, "adapter's B"), cast(weight_a, w.dtype, "adapter's A"))
    made.folded()
    return made


def adapted_weights(m: Structure) -> tuple[Wrapped | Parameter, Wrapped | Parameter]:
    """The experts' two parameters, or what their wrappers hold; the wrapper of down_proj is the outer one."""
    if has("gate_up_proj"):
        return weight("gate_up_proj"), weight("down_proj")
    wrapped = adapts(m, "gate_up_proj"), adapts(m, "down_proj")
    inner = "base_layer." * sum(wrapped)
    down: Wrapped | Parameter
    gate_up: Wrapped | Parameter
    if wrapped[1]:
        down = expert_factors("", f"{inner}down_proj", "h r E", "E h r", "E r x")
    else:
        down = weight(f"{inner}down_proj")
    if wrapped[0]:
        gate_up = expert_factors("base_layer." * wrapped[1], f"{inner}gate_up_proj", "(2 x) (2' r) E",
                                 "E (2 x) (2' r)", "E (2 r) h")
    else:
        gate_up = weight(f"{inner}gate_up_proj")
    return gate_up, down


def router_delta() -> Tensor | None:
    """get_delta_weight on a 2-D weight: scaling·B·A in the weight's dtype, and the check of its sum with W."""
    if not has("base_layer.weight"):
        return None
    w = weight("base_layer.weight")
    delta = cast(scale(low_rank(weight("lora_B.default.weight"), weight("lora_A.default.weight"))), w.dtype)
    add(w, delta)
    return delta


def router_weight(delta: Tensor | None) -> Tensor:
    """The router's matrix, with its adapter if it has one."""
    return weight("weight") if delta is None else add(weight("base_layer.weight"), delta, "weight with adapter")


def low_rank(b: Tensor, a: Tensor) -> Tensor:
    """B @ A: mm, the gradient of A first."""
    a = autocast(a)
    b = autocast(b)
    n = Node("mm", b, a)
    if n.needs(1):
        n.saves(b, f"gradient of A in {n.scope}")
    if n.needs(0):
        n.saves(a, f"gradient of B in {n.scope}")
    out = n.makes((b.dims[0], a.dims[1]), b.dtype, None, "adapter's product")
    n.flops(2, (*b.dims[0], *a.dims[1], *a.dims[0]))
    n.gradient(1)
    n.gradient(0)
    return n.output(out)
