"""Operations with parameters: linear layers, embeddings, norms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from peakmem.estimate.attention import bmm
from peakmem.estimate.inplace import add_into
from peakmem.estimate.layout import Dims, flat, is_contiguous, squeezed, viewable
from peakmem.estimate.node import Node
from peakmem.estimate.ops import (
    add,
    autocast,
    autocast_fp32,
    cast,
    dropout,
    mean_last,
    mul,
    rsqrt,
    scale,
    shift,
    square,
)
from peakmem.estimate.packed import Packed, cloned, packed_product, with_adapter
from peakmem.estimate.scratch import embedding_backward
from peakmem.estimate.shapes import clone, expand, shaped, swap, view
from peakmem.estimate.tape import Parameter, Tensor, current, scope


def weight(name: str) -> Parameter:
    """The parameter of this name in the current part of the model."""
    found = known(name)
    if (fetch := current().fetch) is not None:
        fetch(found)
    return found


def known(name: str) -> Parameter:
    """The same, asked for what it is, not read."""
    tape = current()
    return tape.parameters[(tape.borrowed or tape.layer) + (f"{tape.scope}.{name}" if tape.scope else name)]


def has(name: str) -> bool:
    """Whether the current part of the model has a parameter of this name."""
    tape = current()
    return (tape.borrowed or tape.layer) + (f"{tape.scope}.{name}" if tape.scope else name) in tape.parameters


@contextmanager
def borrowed(name: str, layer: str) -> Iterator[None]:
    """Inside, parameters are those of a module that belongs to a layer, which reads it for itself besides."""
    tape = current()
    tape.borrowed = layer
    with scope(name):
        yield
    tape.borrowed = ""


def project(x: Tensor, name: str, weights: Parameter | None = None, bias: Parameter | None = None) -> Tensor:
    """nn.Linear, or the adapter that replaced it. weights, bias: another module's, where the head is tied."""
    with scope(name):
        if has("base_layer.weight"):
            return adapted(x)
        return product(x, weights or weight("weight"), weight("bias") if has("bias") else bias)


def conv1d(x: Tensor, name: str) -> Tensor:
    """transformers' Conv1D: addmm with the weight as (in, out)."""
    with scope(name):
        if has("base_layer.weight"):
            return adapted(x, transposed=True)
        return product(x, weight("weight"), weight("bias"), transposed=True)


def product(x: Tensor, w: Tensor, bias: Tensor | None, transposed: bool = False, whole: Tensor | None = None) -> Tensor:
    """x·wᵀ (+ bias) on the flattened rows of x; `transposed`: the weight lies as (in, out).
    whole: what w was split from: split() hands on that it wants a gradient, where none is recorded, too.

    mm computes the weight's gradient first, addmm the input's. A gradient that leaves through a view cannot be
    accumulated in place (MmBackward0, AddmmBackward0, ViewBackward0). The weight's has the weight's order in memory
    (FunctionsManual.cpp, mm_mat2_backward), the input's has the input's where that lies column by column
    (mm_mat1_backward).
    """
    if isinstance(w, Packed):
        return packed_product(x, w, w.dims[int(transposed)], bias)
    given = x, w  # what a caller hands over lives until the call is over; autocast is one, too
    if transposed:  # autocast takes the arguments from right to left: addmm(bias, x, weight), linear(x, weight, bias)
        w = autocast(w)
        x = autocast(x)
        bias = None if bias is None else autocast(bias)
    else:
        bias = None if bias is None else autocast(bias)
        w = autocast(w)
        x = autocast(x)
    called, out = (x, w), w.dims[int(transposed)]
    rows, flattened = x.dims[:-1], len(x.dims) > 2
    if bias is not None and flattened and not transposed and not is_contiguous(x.dims, x.memory, current().ones):
        # Linear.cpp: addmm is for what is contiguous. A parameter's copy is cached, a part's is not
        trained = isinstance(given[1], Parameter) and given[1].needs_grad
        return add_into(product(x, given[1] if trained else w, None, whole=whole if w is given[1] else None), bias)
    if flattened and not viewable(x.memory, (flat(rows), x.dims[-1]), current().ones):
        if not (whole or given[1]).needs_grad and bias is None:  # autocast's copy of a trained one wants it, always
            return by_row_of_batch(x, w if transposed else swap(w, w.dims[::-1]))
        if bias is None:  # the weight's t() is older than the copy: its gradient is handed on after that of x
            w = swap(w, w.dims)
        x = clone(x)
    n = Node("mm" if bias is None else "addmm", x, w, *(() if bias is None else (bias,)))
    if n.needs(1):
        n.saves(x, f"gradient of {n.scope}")
    if n.needs(0):
        n.saves(w, f"gradient of the input of {n.scope}")
    y = n.makes((*rows, out), x.dtype)
    n.flops(2, (*flat(y.dims), *x.dims[-1]))
    if bias is None:
        n.gradient(1, memory=w.memory, view=True)
        columns = squeezed(x.memory, current().ones) == squeezed(x.dims[-1] + flat(rows), current().ones)
        n.gradient(0, memory=x.memory if columns else None, view=flattened)
        n.deliver = (0, 1)
    else:
        n.gradient(0, view=flattened)
        n.gradient(1, view=not transposed)
        n.gradient(2, "pass")
        # x's view is older than the weight's t(), so x's gradient waits for the weight's; without a view it is
        # handed on at once, before any AccumulateGrad runs
        n.deliver = (2, 1, 0) if flattened else (0, 2, 1)
    n.incoming = (flat(rows), out)
    del given, called
    return n.output(y)


def by_row_of_batch(x: Tensor, w: Tensor) -> Tensor:
    """matmul on rows that cannot be flattened without a copy, by a matrix that wants no gradient: bmm on it as it lies.

    Source: aten/src/ATen/native/LinearAlgebra.cpp, should_fold.
    """
    return bmm(x, expand(view(w, ((), *w.dims)), (x.dims[0], *w.dims)))


def adapted(x: Tensor, transposed: bool = False, base: Callable[[Tensor], Tensor] | None = None) -> Tensor:
    """peft's lora.Linear: result + B(A(dropout(x as fp32)))·scaling, cast back to the result's dtype.

    base: what runs in the layer that was there before, where it is not nn.Linear's own forward.

    Source: peft 0.21.2, tuners/lora/layer.py, Linear.forward.
    """
    with scope("base_layer"):
        bias = weight("bias") if base is None and has("bias") else None
        result = product(x, weight("weight"), bias, transposed) if base is None else base(x)
    dtype = result.dtype
    a, b = weight("lora_A.default.weight"), weight("lora_B.default.weight")
    if isinstance(w := weight("base_layer.weight"), Packed):
        result = cloned(result, w)
        return with_adapter(x, result, lambda x: adapter_branch(x, a, b))
    x = cast(x, a.dtype, f"input in {a.dtype}")
    result = add(result, adapter_branch(x, a, b), "with adapter")
    return cast(result, dtype, "output")


def adapter_branch(x: Tensor, a: Parameter, b: Parameter) -> Tensor:
    """B(A(x)), scaled."""
    with scope("lora_A"):
        x = product(dropout(x, current().adapter_drops), a, None)
    with scope("lora_B"):
        x = product(x, b, None)
    return scale(x, "adapter's part, scaled")


def convolution(x: Tensor, name: str, target: Dims | str, inputs: bool = False) -> Tensor:
    """nn.Conv2d: keeps input and weight, whatever is trained; one kernel makes the gradients.

    inputs: it is the module that the model calls its input embeddings.
    Source: derivatives.yaml, convolution; tools/autograd/gen_variable_type.py guards no formula of several outputs.
    """
    with scope(name):
        bias = (autocast(weight("bias")),) if has("bias") else ()
        w = autocast(weight("weight"))
        given, x = x, autocast(x)  # an argument lives until the call returns
        n = Node("convolution", x, w, *bias)
        n.saves(x, f"gradient of {n.scope}")
        n.saves(w, f"gradient of the input of {n.scope}")
        out = n.makes(shaped(target), x.dtype)
        n.flops(2, (*flat(out.dims), *flat(w.dims[1:])))
        for i in range(2 + len(bias)):
            n.gradient(i)
        out = n.output(out)
        del given
        return leaf(out) if inputs and current().trains_inputs and not out.needs_grad else out


def embed(ids: Tensor, name: str, inputs: bool = True, scaled: bool = False,
          table: Parameter | None = None, times: bool = False) -> Tensor:
    """nn.Embedding: keeps the ids; the weight's gradient is a whole new matrix (embedding_dense_backward).

    inputs: it is the module that the model calls its input embeddings. scaled: Gemma's, which multiplies them.
    table: another module's weight, which this one shares. times: BART's, which multiplies them by a Python number.
    """
    with scope(name):
        w = weight("weight") if table is None else table
        n = Node("embedding", w)
        embedding_backward(n, flat(ids.dims), flat(w.dims[1:]), flat(w.dims[:1]))
        n.saves(ids, f"which rows of {n.scope} the gradient goes to")
        out = n.makes(ids.dims + w.dims[1:], w.dtype)
        n.gradient(0)
        out = n.output(out)
        if scaled:
            out = times_buffer(out, w)
        if times:
            out = scale(out, "output, scaled")
        return leaf(out) if inputs and current().trains_inputs and not out.needs_grad else out


def times_buffer(x: Tensor, w: Parameter) -> Tensor:
    """`x * self.embed_scale.to(self.weight.dtype)`: a copy of the number where the weight has fewer bits.

    Buffers of a model whose weights a policy casts are fp32, whether its weights are trained or not; kbit preparation
    raises parameters alone.
    """
    tape = current()
    m = tape.parts.m
    raised = m.stored.prepared != "no" and w.dtype != m.dtype
    if w.owned.dtype == w.dtype and not raised and not (w.shard and m.shard_dtype):
        return scale(x, "output, scaled")
    return mul(x, tape.new((), w.dtype, None, f"{tape.scope}/scale in {w.dtype}"), "output, scaled")


def leaf(x: Tensor) -> Tensor:
    """requires_grad_() on a result that needs none: a leaf, which keeps its gradient as long as the graph lives.

    transformers does so to frozen embeddings when a model is checkpointed
    (modeling_utils.py, gradient_checkpointing_enable and enable_input_require_grads).
    """
    return Node.leaf(x)


def rms(x: Tensor, name: str) -> Tensor:
    """transformers' LlamaRMSNorm, line for line: in fp32, the weight multiplied after the cast back."""
    if current().fused_kernels:
        return rms_over_gradient(x, name)
    with scope(name):
        h = cast(x, "fp32", "input in fp32")
        variance = mean_last(square(h))
        h = mul(h, rsqrt(shift(variance)), "normalised in fp32")
        return mul(weight("weight"), cast(h, x.dtype, "normalised"), "output")


def rms_over_gradient(x: Tensor, name: str) -> Tensor:
    """Unsloth's kernels/rms_layernorm.py: keeps its input and one number a row, writes the input's gradient over the
    output's, makes none of the weight."""
    with scope(name):
        n = Node("rms_norm", x)
        n.saves(x, f"gradient of {n.scope}")
        out = n.makes(x.dims, x.dtype)
        n.keeps(n.makes((*x.dims[:-1], ()), "fp32", None, "reciprocal root"), f"{n.scope} is normalised again")
        n.gradient(0, "pass")
        return n.output(out)


def rms_plus_one(x: Tensor, name: str) -> Tensor:
    """transformers' GemmaRMSNorm, line for line: all of it in fp32, times 1 + weight, then cast back."""
    with scope(name):
        h = normalised(cast(x, "fp32", "input in fp32"))
        h = mul(h, shift(cast(weight("weight"), "fp32", "weight in fp32"), "1 + weight"), "output in fp32")
        return cast(h, x.dtype, "output")


def normalised(x: Tensor) -> Tensor:
    return mul(x, rsqrt(shift(mean_last(square(x)))), "normalised in fp32")


def layer_norm(x: Tensor, name: str, statistics: bool = True) -> Tensor:
    """nn.LayerNorm: keeps its input, mean and reciprocal deviation; one kernel makes all three gradients.

    Under autocast it runs in fp32. statistics: count the two numbers per row.
    Source: aten/src/ATen/native/cuda/layer_norm_kernel.cu.
    """
    with scope(name):
        parameters = [weight(part) for part in ("weight", "bias") if has(part)]
        affine = [autocast_fp32(p) for p in reversed(parameters)][::-1]  # arguments are cast from right to left
        given, x = x, autocast_fp32(x)  # an argument lives until the call returns
        out = layer_normed(x, affine, statistics)
        del given
        return out


def layer_normed(x: Tensor, affine: list[Tensor], statistics: bool = True) -> Tensor:
    """F.layer_norm: keeps its input, weight and bias; parameters are there anyway."""
    n = Node("layer_norm", x, *affine)
    for part in (x, *affine):
        if not isinstance(part, Parameter):
            n.saves(part, f"gradients of {n.scope}")
    out = n.makes(x.dims, x.dtype)
    names = ("mean", "reciprocal deviation") if statistics else ()
    numbers = [n.makes(x.dims[:-1] + ((),), "fp32", None, name_of) for name_of in names]
    for number in numbers:
        n.keeps(number, f"{n.scope} is normalised again in backward")
    for i in range(1 + len(affine)):
        n.gradient(i)
    return n.output(out)
