"""Operations of convolution networks on (b, channels, rows, columns): batch norms and pools."""

from __future__ import annotations

from peakmem.estimate.contrastive import divide
from peakmem.estimate.layout import Dims, dims
from peakmem.estimate.node import Node
from peakmem.estimate.ops import add, autocast_fp32, mean_last, mul, result_like, shift
from peakmem.estimate.shapes import shaped
from peakmem.estimate.tape import Tensor, current, scope
from peakmem.estimate.weights import weight


def batch_norm(x: Tensor, name: str) -> Tensor:
    """nn.BatchNorm2d: keeps its input, mean and reciprocal deviation of each channel, in fp32.

    The kernel makes the two for inference too, which takes those that training has left in the buffers.

    Source: derivatives.yaml, native_batch_norm; aten/src/ATen/native/cuda/Normalization.cu. cuDNN's kernel, which
    PyTorch takes for fp32, keeps a reserve of its own besides, which no tensor's size tells.
    """
    with scope(name):
        n = Node("batch_norm", x, weight("weight"), weight("bias"))
        n.saves(x, f"gradients of {n.scope}")
        out = result_like(n, x)
        for what in ("mean", "reciprocal deviation"):
            number = n.makes((x.dims[1],), "fp32", None, what)
            n.keeps(number, f"{n.scope} is normalised again in backward")
        for i in range(3):
            n.gradient(i)
        return n.output(out)


def max_pool(x: Tensor, target: str) -> Tensor:
    """max_pool2d_with_indices: keeps its input and where each maximum was."""
    n = Node("max_pool", x)
    n.saves(x, f"shape of what {n.scope} pooled")
    out = n.makes(shaped(target), x.dtype, None, "pooled")
    n.keeps(n.makes(shaped(target), "int64", None, "places of the maxima"), f"where {n.scope} found each maximum")
    n.gradient(0)
    return n.output(out)


def mean_over_picture(x: Tensor) -> Tensor:
    """adaptive_avg_pool2d to one element: a mean over rows and columns, kept as ones."""
    n = Node("mean", x)
    out = n.makes((*x.dims[:2], *dims("1 1")), x.dtype, None, "mean of the picture")
    n.gradient(0)
    return n.output(out)


def mean_over(x: Tensor, at: int, count: int = 1) -> Tensor:
    """mean over dimensions, which go: the gradient is expanded, then divided (MeanBackward1)."""
    n = Node("mean", x)
    out = n.makes(x.dims[:at] + x.dims[at + count:], x.dtype, None, "mean")
    n.gradient(0)
    return n.output(out)


def response_norm(x: Tensor) -> Tensor:
    """ConvNextV2GRN on (b, rows, columns, channels): each channel times how loud it is among all."""
    loudness = vector_norm(x)
    among = divide(loudness, shift(mean_last(loudness)))
    return add(add(mul(weight("weight"), mul(x, among)), weight("bias")), x)


def vector_norm(x: Tensor, target: Dims | None = None) -> Tensor:
    """linalg.vector_norm, by default over rows and columns, kept as ones: keeps its input and its result.

    Autocast asks for an fp32 result, without a copy of the input (fp32_set_opt_dtype).
    Source: FunctionsManual.cpp, linalg_vector_norm_backward: `grad * (self / norm).masked_fill_(norm == 0, 0)`.
    """
    n = Node("vector_norm", x)
    n.saves(x, f"direction of {n.scope}")
    dtype = "fp32" if current().autocast else x.dtype
    out = n.makes(target or (x.dims[0], (), (), x.dims[3]), dtype, None, "norm")
    n.keeps(out, f"divisor of the gradient in {n.scope}")
    n.gradient(0, dims=x.dims, dtype=dtype, memory=x.memory, temporaries=((x.dims, dtype), (out.dims, "bool")))
    return n.output(out)


def group_norm(x: Tensor, name: str) -> Tensor:
    """nn.GroupNorm: keeps its input, and mean and reciprocal deviation of each of Gn groups, in its own dtype.

    Under autocast it runs in fp32.
    Source: derivatives.yaml, native_group_norm; aten/src/ATen/native/cuda/group_norm_kernel.cu.
    """
    with scope(name):
        x = autocast_fp32(x)
        n = Node("group_norm", x, weight("weight"), weight("bias"))
        n.saves(x, f"gradients of {n.scope}")
        out = result_like(n, x)
        for what in ("mean", "reciprocal deviation"):
            number = n.makes((x.dims[0], ("Gn",)), x.dtype, None, what)
            n.keeps(number, f"{n.scope} is normalised again in backward")
        n.works_on_contiguous()
        for i in range(3):
            n.gradient(i)
        return n.output(out)


def upsample(x: Tensor, target: str) -> Tensor:
    """interpolate with the nearest pixel: nothing is kept (UpsampleNearest2DBackward0). Autocast runs it in fp32."""
    x = autocast_fp32(x)
    n = Node("upsample", x)
    out = n.makes(shaped(target), x.dtype, None, "upsampled")
    n.gradient(0)
    return n.output(out)
