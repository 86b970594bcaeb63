"""LitGPT's own LoRA (litgpt/lora.py): adapters in the module's dtype, a dropout before each, 0.05 by default.

Queries, keys and values share one matrix A; B's parts are a grouped convolution, and what is not adapted is filled
with zeros before the sum.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.definition import Row
from peakmem.estimate.layout import Dims, dims
from peakmem.estimate.node import Node
from peakmem.estimate.ops import add, dropout, scale
from peakmem.estimate.shapes import swap
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Parameter, Tensor, scope
from peakmem.estimate.weights import has, product, weight

WORDS = ("query", "key", "value", "projection", "mlp", "head")
"""What --lora-targets takes: LitGPT's lora_query, lora_key, … without the prefix."""
PARTS = ("query", "key", "value")


def enabled(m: Structure) -> tuple[str, ...]:
    return tuple(word for word in PARTS if word in m.lora)


def adapters(m: Structure, module: str, outputs: str, inputs: str, word: str) -> Iterator[Row]:
    """LoRALinear's two matrices."""
    if word in m.lora:
        yield Row(f"{module}.lora_A", f"r {inputs}", "adapter")
        yield Row(f"{module}.lora_B", f"{outputs} r", "adapter")


def qkv_adapters(m: Structure) -> Iterator[Row]:
    """LoRAQKVLinear's: A has a rank for every part, B the rows of every part; and which columns they go to."""
    parts = enabled(m)
    if parts:
        yield Row("attn.attn.lora_A", f"({len(parts)} r) h", "adapter")
        yield Row("attn.attn.lora_B", f"{updated(m)} r", "adapter")
        if len(parts) < 3:
            yield Row("attn.attn.lora_ind", updated(m), "buffer", "int64")


def updated(m: Structure) -> str:
    """The features of all enabled parts together."""
    return "({} d)".format("+".join({"query": "a", "key": "k", "value": "k"}[part] for part in enabled(m)))


def adapted(m: Structure, x: Tensor, name: str, word: str) -> Tensor:
    """LoRALinear.forward: pretrained + (dropout(x) @ Aᵀ @ Bᵀ) · scaling."""
    with scope(name):
        pretrained = product(x, weight("weight"), weight("bias") if has("bias") else None)
        if word not in m.lora:
            return pretrained
        x = dropout(x, m.drops("adapter"))
        lora = product(product(x, weight("lora_A"), None), weight("lora_B"), None)
        return add(pretrained, scale(lora, "adapter's part, scaled"), "with adapter")


def qkv_adapted(m: Structure, x: Tensor) -> Tensor:
    """LoRAQKVLinear.forward."""
    with scope("attn"):
        pretrained = product(x, weight("weight"), weight("bias") if has("bias") else None)
        if not enabled(m):
            return pretrained
        after_a = product(dropout(x, m.drops("adapter")), weight("lora_A"), None)
        after_b = grouped_convolution(after_a, weight("lora_B"), dims(f"b s {updated(m)}"))
        if len(enabled(m)) < 3:
            after_b = zero_padded(after_b, pretrained.dims)
        else:
            after_b = after_b.seen_as(pretrained.dims) if not after_b.node else renamed(after_b, pretrained.dims)
        return add(pretrained, scale(after_b, "adapter's part, scaled"), "with adapter")


def grouped_convolution(x: Tensor, b: Parameter, target: Dims) -> Tensor:
    """conv1d over the transposed input, a group for each part: keeps input and B; features come before tokens."""
    x = swap(x, x.dims)
    n = Node("convolution", x, b)
    n.saves(x, f"gradient of {n.scope}.lora_B")
    n.saves(b, f"gradient of the input of {n.scope}.lora_B")
    first, tokens, features = target
    out = n.makes(target, x.dtype, first + features + tokens, "adapter's part")
    n.gradient(0)
    n.gradient(1)
    return n.output(out)


def zero_padded(x: Tensor, target: Dims) -> Tensor:
    """zero_pad: index_copy into zeros. Backward selects the columns again, and asks the source for its shape: it is
    kept (derivatives.yaml, index_copy: expand_as(source))."""
    n = Node("index_copy", x)
    n.saves(x, f"its shape: index_copy of {n.scope} keeps what it copied")
    out = n.makes(target, x.dtype, None, "adapter's part, with zeros")
    n.gradient(0)
    return n.output(out)


def renamed(x: Tensor, target: Dims) -> Tensor:
    """All three parts: nothing is padded, the features are only counted otherwise."""
    n = Node("regroup", x)
    n.gradient(0, dims=x.dims)
    return n.output(Tensor(target, x.dtype, tuple(letter for group in target for letter in group), x.storage, True))
