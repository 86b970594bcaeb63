"""Quantised weights: packed bytes and scales, and what a product with them allocates.

Sources: bitsandbytes 0.50.2, nn/modules.py (Linear4bit, Linear8bitLt), autograd/_functions.py (MatMul4Bit,
MatMul8bitLt), backends/cuda/ops.py (gemm_4bit, int8_vectorwise_quant, int8_mm_dequant). What matters to memory:

- MatMul4Bit keeps nothing but the packed weight; its backward dequantises the matrix again, one at a time.
- Its forward reads packed weights directly for few rows; for more it dequantises the matrix, as backward does.
- MatMul8bitLt keeps its input as an attribute: no checkpointing hook sees it, and backward does not let it go: it is
  alive from the first forward until the loss is. No outlier columns are assumed: how many there are is in the data.
- The other schemes are read by kernels that take packed weights (vLLM's Marlin and its like): no copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from peakmem.estimate.formulas import NOTHING
from peakmem.estimate.layout import Dims, flat, renamed, size_key, viewable
from peakmem.estimate.node import Node
from peakmem.estimate.ops import add, cast
from peakmem.estimate.outputs import keep_in_graph
from peakmem.estimate.scratch import dense_for_product
from peakmem.estimate.shapes import clone
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Parameter, Tape, Tensor, current
from peakmem.tables.quantised import BNB_4BIT, FEW_ROWS, GROUP, SCHEMES, Part


class Packed(Parameter):
    """A weight in packed bytes: the shape and dtype of what it stands for, the storages of what is there."""

    __slots__ = ("scheme", "parts", "packed_from")

    def __init__(self, shape: Dims, dtype: str, name: str, fold: str, scheme: str, parts: list[Tensor],
                 packed_from: str = "") -> None:
        super().__init__(shape, dtype, parts[0].storage, name, False, fold)
        self.scheme, self.parts, self.packed_from = scheme, parts, packed_from or dtype


def make(tape: Tape, m: Structure, shape: Dims, name: str, fold: str, transposed: bool, stacked: bool,
         own: str = "") -> Packed:
    """A quantised matrix, or a bank of experts. transposed: it lies as (in, out). own: the dtype it was packed from,
    where its class gives it one."""
    stored = m.stored
    outputs, inputs = (shape[-1], shape[-2]) if transposed else (shape[-2], shape[-1])
    bank = shape[:-2] if stacked else ()
    group = stored.group or GROUP.get(stored.scheme, 0)
    parts = [tape.new((*bank, *part_dims(part, outputs, inputs, stored.bits, group)), part.dtype, None,
                      f"{name}/{part.name}") for part in SCHEMES[stored.scheme].parts]
    for made in parts:
        if made.storage:
            made.storage.record.source = SCHEMES[stored.scheme].source
    return Packed(shape, m.dtype, name, fold, stored.scheme, parts, own or stored.packed_from)


def part_dims(part: Part, outputs: tuple[str, ...], inputs: tuple[str, ...], bits: int, group: int) -> Dims:
    """The shape of one part in letters."""
    words = {"in": inputs, "out": outputs, "all": (*outputs, *inputs)}
    made: list[tuple[str, ...]] = []
    for word in part.shape:
        what, _, divisor = word.partition("/")
        if what == "one":
            made.append(())
        elif what == "groups":
            made.append((over(inputs, group),) if group > 0 else ())
        elif what == "blocks":  # one scale each, or one for all
            made += [(over(outputs, group),), (over(inputs, group),)] if group > 0 else [()]
        elif what.isdigit():
            made.append((what,))
        else:
            by = 32 // bits if divisor == "pack" else int(divisor or 1)
            made.append(words[what] if by == 1 else (over(words[what], by),))
    return tuple(made)


def over(letters: tuple[str, ...], by: int) -> str:
    """A product divided and rounded up, as one derived letter."""
    factors = (f"({letter})" if any(sign in letter for sign in "+-^/*") else letter for letter in letters)
    return f"{'*'.join(factors)}/{by}"


def packed_product(x: Tensor, w: Packed, out: tuple[str, ...], bias: Tensor | None = None) -> Tensor:
    """x·wᵀ. A bias is added inside the kernel. bitsandbytes' 4-bit layer computes in a dtype of its own."""
    if w.scheme == "int8":
        return product_8bit(x, w, out)
    if current().grad_enabled is False and w.scheme not in BNB_4BIT:
        return product_fused(x, w, out)
    given = x
    x = cast(x, w.dtype, f"input in {w.dtype}")
    lower(bias, w)
    y = product_4bit(x, w, out)
    y = cast(y, given.dtype, f"output in {given.dtype}")
    return y


def lower(bias: Tensor | None, w: Packed) -> None:
    """`bias.data = bias.data.to(x.dtype)`: a raised bias has the product's dtype from its first forward on."""
    if not isinstance(bias, Parameter) or bias.dtype == w.dtype:
        return
    tape = current()
    kind, tape.kind = tape.kind, "weights"
    bias.storage, bias.dtype = tape.new(bias.dims, w.dtype, None, bias.full_name).storage, w.dtype
    tape.kind = kind


def cloned(result: Tensor, w: Packed) -> Tensor:
    """peft 0.21.2, tuners/lora/bnb.py: Linear4bit clones what the base gave, in defence."""
    return clone(result, "output, cloned") if w.scheme in BNB_4BIT else result


def with_adapter(x: Tensor, result: Tensor, branch: Callable[[Tensor], Tensor]) -> Tensor:
    """peft 0.21.2, tuners/lora/bnb.py: no input cast under autocast; the branch is cast before it is added."""
    autocast = current().autocast
    x = x if autocast else cast(x, "fp32", "input in fp32")
    output = branch(x)
    if not autocast:
        output = cast(output, result.dtype, "adapter's part")
    return add(result, output, "with adapter")


def product_fused(x: Tensor, w: Packed, out: tuple[str, ...]) -> Tensor:
    """A kernel that reads packed weights; inference alone."""
    tape = current()
    tape.count("mm", tape.scope, 2, (*flat(x.dims[:-1]), *out, *x.dims[-1]))
    return tape.new((*x.dims[:-1], out), x.dtype, None, f"{tape.scope}/output")


def product_4bit(x: Tensor, w: Packed, out: tuple[str, ...]) -> Tensor:
    """matmul_4bit."""
    rows, dims, dtype = x.dims[:-1], x.dims, x.dtype
    n = Node("matmul_4bit", x)
    tape, scope = n.tape, n.scope
    letters = renamed(flat(rows), tape.letters)
    if not tape.dequantises_always:
        many = dequantised_for_many(tape, w, scope, letters)
    elif tape.grad_enabled:
        many = [dequantised(tape, w, scope)]
    else:
        many = [dequantised(tape, w, scope, letters, 1)]  # for a single row there is another kernel: gemv_4bit
    y = n.makes((*rows, out), dtype)
    del many
    n.flops(2, (*flat(y.dims), *dims[-1]))
    if n.active:
        if tape.keeps_packed_inputs:
            keep_in_graph(x, f"bitsandbytes keeps the input of {scope}, though no gradient needs it")
        n.formula = lambda tape, grads: [back(tape, dims, dtype, scope, lambda: dequantised(tape, w, scope), grads[0])]
    return n.output(y)


def back(tape: Tape, shape: Dims, dtype: str, scope: str, matrix: Callable[[], Tensor], given: Tensor) -> Tensor:
    """grad_output · the dequantised matrix, which goes when the product is there.

    torch.matmul multiplies it as it lies by a matrix that wants no gradient: in mm, or in bmm over all but its last
    rows, which is a copy where those cannot be seen as one dimension (LinearAlgebra.cpp, should_fold and _matmul_impl).
    """
    whole = matrix()
    rows = flat(given.dims[:-2]), *given.dims[-2:]
    seen = viewable(given.memory, rows, tape.ones)
    dense = given if seen else tape.new(given.dims, given.dtype, None, f"{scope}/gradient, copied")
    scratch = dense_for_product(tape, "mm", dense, scope)
    made = tape.new(shape, dtype, None, f"{scope}/input gradient")
    del whole, dense, scratch
    return made


def dequantised_for_many(tape: Tape, w: Packed, scope: str, rows: tuple[str, ...]) -> list[Tensor]:
    """backends/cuda/ops.py, _dequant_linear_fallback: all that lives until the product is there."""
    names = ["dequantised weight"]
    if w.scheme.endswith("double"):
        names = ["scales in fp32", "scales with their offset", *names]
    keys = {name: size_key("fp32", (over(flat(w.dims), 64),)) for name in names}
    keys["dequantised weight"] = size_key(w.dtype, flat(w.dims))
    return [tape.new((), w.dtype if name == "dequantised weight" else "fp32", None, f"{scope}/{name}",
                     if_many(keys[name], rows, FEW_ROWS)) for name in names]


def dequantised(tape: Tape, w: Packed, scope: str, rows: tuple[str, ...] = (), few: int = 0) -> Tensor:
    """dequantize_4bit: the whole matrix; scales that were quantised first become fp32, and go.

    rows: in forward, where it happens for more than `few` rows alone.
    """
    absmax = None
    if w.scheme.endswith("double"):
        scales = size_key("fp32", (over(flat(w.dims), 64),))
        absmax = tape.new((), "fp32", None, f"{scope}/scales in fp32", if_many(scales, rows, few))
    key = if_many(size_key(w.packed_from, flat(w.dims)), rows, few)
    made = tape.new((), w.packed_from, None, f"{scope}/dequantised weight", key)
    del absmax
    if w.packed_from != w.dtype:
        key = if_many(size_key(w.dtype, flat(w.dims)), rows, few)
        made = tape.new((), w.dtype, None, f"{scope}/dequantised weight in {w.dtype}", key)
    return made


def if_many(key: Any, rows: tuple[str, ...], few: int) -> Any:
    return ("from", few + 1, 1, (rows,), key, NOTHING) if rows else key


def product_8bit(x: Tensor, w: Packed, out: tuple[str, ...]) -> Tensor:
    """bnb.matmul with a threshold and no outliers: quantise the rows, multiply in int8, scale back."""
    rows = x.dims[:-1]
    if not viewable(x.memory, (flat(rows), x.dims[-1]), current().ones):
        x = clone(x)
    n = Node("matmul_8bit", x)
    tape, scope = n.tape, n.scope
    half = x if x.dtype == "fp16" else tape.new(x.dims, "fp16", None, f"{scope}/input in fp16")
    scales = tape.new(rows, "fp32", None, f"{scope}/scales of the input")
    small = tape.new(x.dims, "uint8", None, f"{scope}/input in int8")
    absolute = tape.new(x.dims, half.dtype, None, f"{scope}/input, absolute")
    over_threshold = tape.new(x.dims, "bool", None, f"{scope}/outliers")
    del absolute, over_threshold, half
    whole = tape.new((*rows, out), "int32", None, f"{scope}/product in int32")
    y = tape.new((*rows, out), "fp16", None, f"{scope}/product in fp16")
    if x.dtype != "fp16":
        y = n.makes((*rows, out), x.dtype)
    del whole, scales, small
    n.flops(2, (*flat(y.dims), *x.dims[-1]))
    if n.active:
        keep_in_graph(x, f"bitsandbytes keeps the input of {scope}, checkpointed or not")
        n.incoming = (flat(rows), out)
    dims, dtype = x.dims, x.dtype

    def matrix() -> Tensor:
        made = tape.new(w.dims, dtype, None, f"{scope}/dequantised weight")
        tape.new(w.dims[:1], "fp32", None, f"{scope}/row scales over 127")
        return made

    n.formula = lambda tape, grads: [back(tape, dims, dtype, scope, matrix, grads[0])]
    return n.output(y)


