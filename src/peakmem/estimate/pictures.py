"""Operations of convolution networks on (b, channels, rows, columns): batch norms and pools."""

from __future__ import annotations

from peakmem.estimate.layout import dims
from peakmem.estimate.node import Node
from peakmem.estimate.ops import autocast_fp32, result_like
from peakmem.estimate.shapes import shaped
from peakmem.estimate.tape import Tensor, scope
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


def mean_over(x: Tensor, at: int) -> Tensor:
    """mean over one dimension: the gradient is expanded, then divided, a full tensor (MeanBackward1)."""
    n = Node("mean", x)
    out = n.makes(x.dims[:at] + x.dims[at + 1:], x.dtype, None, "mean")
    n.gradient(0)
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
