"""Operations on elements: what each saves and makes, and what its backward allocates.

Each rule mirrors one entry of PyTorch 2.13's tools/autograd/derivatives.yaml (named in the docstring) and the
kernel behind it. Lines stand in the order in which things happen.
"""

from __future__ import annotations

from typing import Any

from peakmem.estimate.layout import BYTES, FLOATS, Dims, dense_order
from peakmem.estimate.node import Node
from peakmem.estimate.tape import Parameter, Tensor, current

SCALAR: Dims = ()


def promote(x: Tensor, y: Tensor) -> str:
    """The dtype of an operation on two tensors; a number's does not count beside one with dimensions."""
    if not x.dims or not y.dims:
        return (y if not x.dims else x).dtype
    return "fp32" if x.dtype != y.dtype and "fp32" in (x.dtype, y.dtype) else x.dtype


def broadcast(x: Tensor, y: Tensor) -> Tensor:
    """Which operand has the shape of the result; the order of its strides is the result's (TensorIterator)."""
    return x if (size_rank(x.dims), len(x.dims)) >= (size_rank(y.dims), len(y.dims)) else y


def size_rank(shape: Dims) -> int:
    return sum(1 for group in shape if group)


def result_like(n: Node, x: Tensor, dtype: str | None = None, name: str = "output") -> Tensor:
    return n.makes(x.dims, dtype or x.dtype, dense_order(x.dims, x.memory), name)


def add(x: Tensor, y: Tensor, name: str = "sum") -> Tensor:
    """add.Tensor: saves nothing; both inputs get the incoming gradient itself."""
    n = Node("add", x, y)
    full = broadcast(x, y)
    out = result_like(n, full, promote(x, y), name)
    n.gradient(1, "pass")
    n.gradient(0, "pass")
    return n.output(out)


def sub(x: Tensor, y: Tensor, name: str = "difference") -> Tensor:
    """sub.Tensor: saves nothing; the second input gets the negated gradient, made first."""
    n = Node("sub", x, y)
    full = broadcast(x, y)
    dtype = promote(x, y)
    out = result_like(n, full, dtype, name)
    n.gradient(1, dims=full.dims, dtype=dtype, memory="grad")
    n.gradient(0, "pass")
    return n.output(out)


def mul(x: Tensor, y: Tensor, name: str = "product") -> Tensor:
    """mul.Tensor: each factor is kept for the gradient of the other; gradients are made at full size."""
    n = Node("mul", x, y)
    full = broadcast(x, y)
    if n.needs(0):
        n.saves(y, f"gradient of {x.name}, its factor")
    if n.needs(1):
        n.saves(x, f"gradient of {y.name}, its factor")
    dtype = promote(x, y)
    out = result_like(n, full, dtype, name)
    n.gradient(1, dims=full.dims, dtype=dtype, memory="grad")
    n.gradient(0, dims=full.dims, dtype=dtype, memory="grad")
    return n.output(out)


def scale(x: Tensor, name: str = "scaled") -> Tensor:
    """mul or div by a Python number: nothing to keep."""
    n = Node("scale", x)
    out = result_like(n, x, None, name)
    n.gradient(0, memory="grad")
    return n.output(out)


def shift(x: Tensor, name: str = "shifted") -> Tensor:
    """add of a Python number: the gradient passes."""
    n = Node("shift", x)
    out = result_like(n, x, None, name)
    n.gradient(0, "pass")
    return n.output(out)


def masked_fill(x: Tensor, mask: Tensor, name: str = "filled") -> Tensor:
    """masked_fill with a number: keeps the mask; what is filled gets no gradient (MaskedFillBackward0)."""
    n = Node("masked_fill", x)
    n.saves(mask, f"where {n.scope} was filled")
    out = result_like(n, x, None, name)
    n.gradient(0, memory="grad")
    return n.output(out)


def neg(x: Tensor, name: str = "negative") -> Tensor:
    """neg: the gradient is negated."""
    n = Node("neg", x)
    out = result_like(n, x, None, name)
    n.gradient(0, memory="grad")
    return n.output(out)


def cast(x: Tensor, dtype: str, name: str = "") -> Tensor:
    """_to_copy: nothing is kept; the engine casts the gradient back."""
    if x.dtype == dtype:
        return x
    n = Node("cast", x)
    out = result_like(n, x, dtype, name or f"{dtype} copy")
    if out.storage and is_weight(x) and BYTES[dtype] < BYTES[x.dtype] and n.tape.kind == "temporary":
        out.storage.record.kind = "weights"  # but what a second run makes is of one kind
    n.gradient(0, "pass")
    return n.output(out)


def is_weight(x: Tensor) -> bool:
    """Whether this is a parameter, or a view of one."""
    record = x.record
    return record is not None and record.kind == "weights" and any(
        x.storage is p.storage for p in current().parameters.values())


def floats_cast(given: Any, dtype: str) -> Any:
    """An argument, or a tuple of them, with floating tensors in this dtype, if one is named."""
    if isinstance(given, tuple):
        return tuple(floats_cast(part, dtype) for part in given)
    return cast(given, dtype) if dtype and isinstance(given, Tensor) and given.dtype in FLOATS else given


def square(x: Tensor) -> Tensor:
    """pow.Tensor_Scalar with exponent 2: `grad * (2 * x.pow(1))` makes two tensors on the way."""
    x = autocast_fp32(x)
    n = Node("pow", x)
    n.saves(x, f"slope of the square in {n.scope}: 2·x")
    out = result_like(n, x, None, "square")
    n.gradient(0, memory="grad", temporaries=((x.dims, x.dtype), (x.dims, x.dtype)))
    return n.output(out)


def mean_last(x: Tensor) -> Tensor:
    """mean over the last dimension, kept as 1: the gradient is expanded, then divided."""
    n = Node("mean", x)
    out = n.makes(x.dims[:-1] + ((),), x.dtype, None, "mean")
    n.gradient(0)
    return n.output(out)


def total_over(x: Tensor, at: int, keep: bool = False, name: str = "sum") -> Tensor:
    """sum over one dimension: the gradient is expanded, without memory of its own (SumBackward1)."""
    n = Node("sum", x)
    left: Dims = ((),) if keep else ()
    dtype = "fp32" if current().autocast else x.dtype  # asked of the sum itself: fp32_set_opt_dtype
    out = n.makes(x.dims[:at] + left + x.dims[at + 1:], dtype, None, name)
    n.gradient(0, "expand")
    return n.output(out)


def rsqrt(x: Tensor) -> Tensor:
    """rsqrt: the result is kept; `-0.5 * grad * result.pow(3)` makes two tensors on the way."""
    x = autocast_fp32(x)
    n = Node("rsqrt", x)
    out = result_like(n, x, None, "reciprocal root")
    n.keeps(out, f"slope of the reciprocal root in {n.scope}")
    n.gradient(0, temporaries=((x.dims, x.dtype), (x.dims, x.dtype)))
    return n.output(out)


def cube(x: Tensor) -> Tensor:
    """pow.Tensor_Scalar with exponent 3: `grad * (3 * x.pow(2))` makes two tensors on the way."""
    x = autocast_fp32(x)
    n = Node("pow", x)
    n.saves(x, f"slope of the cube in {n.scope}: 3·x²")
    out = result_like(n, x, None, "cube")
    n.gradient(0, memory="grad", temporaries=((x.dims, x.dtype), (x.dims, x.dtype)))
    return n.output(out)


def inverse_root(x: Tensor) -> Tensor:
    """pow.Tensor_Scalar with exponent -0.5: `grad * (-0.5 * x.pow(-1.5))` makes two tensors on the way."""
    x = autocast_fp32(x)
    n = Node("pow", x)
    n.saves(x, f"slope of the inverse root in {n.scope}")
    out = result_like(n, x, None, "inverse root")
    n.gradient(0, memory="grad", temporaries=((x.dims, x.dtype), (x.dims, x.dtype)))
    return n.output(out)


def gelu_new(x: Tensor) -> Tensor:
    """transformers' NewGELUActivation, in Python: 0.5·x·(1 + tanh(c·(x + 0.044715·x³)))."""
    half = scale(x, "half the input")
    return mul(half, shift(tanh(scale(add(x, scale(cube(x), "cube, scaled")), "tanh's argument")), "1 + tanh"), "gelu")


def activation(x: Tensor, kind: str) -> Tensor:
    """silu, gelu, relu, sigmoid as one kernel: keeps its input (relu, sigmoid: its output)."""
    if kind == "gelu_new":
        return gelu_new(x)
    if kind == "relu2":
        applied = activation(x, "relu")  # alive until the square exists
        return square(applied)
    if kind == "quick_gelu":  # transformers' QuickGELUActivation: x·sigmoid(1.702·x)
        return mul(x, activation(scale(x), "sigmoid"), "gelu")
    by_output = kind in ("relu", "sigmoid")
    n = Node(kind, x)
    if not by_output:
        n.saves(x, f"slope of {kind} in {n.scope}")
    out = result_like(n, x, None, kind)
    if by_output:
        n.keeps(out, f"slope of {kind} in {n.scope}")
    n.gradient(0, memory="grad")
    return n.output(out)


def tanh(x: Tensor, name: str = "tanh") -> Tensor:
    """tanh: the result is kept."""
    n = Node("tanh", x)
    out = result_like(n, x, None, name)
    n.keeps(out, f"slope of tanh in {n.scope}")
    n.gradient(0, memory="grad")
    return n.output(out)


def dropout(x: Tensor, on: bool) -> Tensor:
    """native_dropout: a result and a mask of one byte per element; where it is off nothing happens.

    Its gradient is contiguous, whatever the incoming one is (cuda/Dropout.cu, suggest_memory_format).
    """
    if not on:
        return x
    n = Node("dropout", x)
    out = result_like(n, x, None, "dropped out")
    mask = result_like(n, x, "bool", "dropout mask")
    n.keeps(mask, f"which elements {n.scope} dropped")
    n.gradient(0)
    return n.output(out)


def softmax(x: Tensor, dtype: str = "") -> Tensor:
    """softmax over the last dimension: the result is kept; always contiguous (SoftmaxBackward0).

    dtype: what it is computed in. CUDA reads fp16 directly, other inputs are copied first.
    """
    dtype = dtype or ("fp32" if current().autocast else x.dtype)
    given = x  # an argument lives until the call returns
    if not (x.dtype == "fp16" and dtype == "fp32"):
        x = cast(x, dtype, f"scores in {dtype}")
    n = Node("softmax", x)
    out = n.makes(x.dims, dtype, None, "softmax")
    n.keeps(out, f"slope of the softmax in {n.scope}")
    n.gradient(0)
    del given
    return n.output(out)


def autocast(x: Tensor) -> Tensor:
    """What autocast does to an argument of a matmul: a 16-bit copy, cached for fp32 leaves that want a gradient.

    Source: aten/src/ATen/autocast_mode.cpp, cached_cast.
    """
    tape = current()
    if not tape.autocast or x.dtype == tape.autocast or x.dtype not in ("fp32", "bf16", "fp16"):
        return x
    found = tape.casts.get(id(x))
    if found is not None:
        return found[1]
    copy = cast(x, tape.autocast, f"{last(x.name)} in {tape.autocast}")
    if copy.storage and isinstance(x, Parameter):
        copy.storage.record.name = f"{x.full_name} in {tape.autocast}"
    leaf = isinstance(x, Parameter) or (x.node is not None and x.node.op == "leaf")
    if leaf and x.needs_grad and x.dtype == "fp32":
        tape.casts[id(x)] = (x, copy)
    return copy


class autocast_off:
    """Inside, autocast casts nothing: so it is within an operation that autocast itself has called."""

    __slots__ = ("outer",)

    def __enter__(self) -> None:
        tape = current()
        self.outer, tape.autocast = tape.autocast, ""

    def __exit__(self, *_: object) -> None:
        current().autocast = self.outer


def autocast_fp32(x: Tensor) -> Tensor:
    """What autocast does to an argument of pow, softmax, norms and losses: an fp32 copy."""
    return cast(x, "fp32") if current().autocast and x.dtype in ("bf16", "fp16") else x


def last(name: str) -> str:
    """The last part of a storage's name, for names built on it."""
    return name.rsplit("/", 1)[-1]
