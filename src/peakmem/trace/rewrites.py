"""Operations that autograd runs in place on ordinary tensors and out of place on tensor subclasses.

``at::isTensorSubclassLike`` turns a few in-place updates of torch's C++ code into out-of-place ones for a fake tensor;
a real run does not allocate there. `in_place` names the update that a real run would make.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch

_aten = torch.ops.aten
_add = _aten.add.Tensor

# FunctionsManual.cpp and TensorAdvancedIndexing.cpp, torch 2.13: index_backward, index_select_backward,
# gather_backward and value_selecting_reduction_backward write into zeros they have just made.
_INTO_NEW_ZEROS = {
    _aten.index_put.default: _aten.index_put_.default,
    _aten._index_put_impl.default: _aten._index_put_impl_.default,
    _aten.index_add.default: _aten.index_add_.default,
    _aten.scatter_add.default: _aten.scatter_add_.default,
    _aten.scatter.src: _aten.scatter_.src,
    _aten.scatter.value: _aten.scatter_.value,
}
# Loss.cpp, binary_cross_entropy_with_logits_backward: each step works on the result of the one before.
_CHAINED = {_aten.sub.Tensor: _aten.sub_.Tensor, _aten.mul.Tensor: _aten.mul_.Tensor}

# Losses whose scalar keeps the storage of all elements: the structured kernel sizes its output for them and then
# resizes the tensor, which never shrinks a storage (Loss.cpp, TORCH_META_FUNC(mse_loss) and (smooth_l1_loss); Loss.cu,
# binary_cross_entropy_out_cuda).
FULL_STORAGE = frozenset(
    {_aten.mse_loss.default, _aten.smooth_l1_loss.default, _aten.binary_cross_entropy.default}
)

# Losses that are made for all elements before they are reduced (Loss.cpp); nobody outside the kernel sees that tensor.
WHOLE_FIRST = frozenset({_aten.mse_loss.default, _aten.smooth_l1_loss.default, _aten.huber_loss.default})

# Gradients that fake tensors compute by torch/_decomp/decompositions.py, whose elements lie in another order than
# the kernels have them. TensorIterator takes the order of the first operand, the incoming gradient (Activation.cpp) ...
_AS_THE_GRADIENT = frozenset(
    {
        _aten.softplus_backward.default,
        _aten.elu_backward.default,
        _aten.hardtanh_backward.default,
        _aten.hardsigmoid_backward.default,
        _aten.hardswish_backward.default,
    }
)
# ... and these make contiguous results (SoftMax.cpp, TORCH_META_FUNC(_log_softmax_backward_data); layer_norm_kernel.cu,
# layer_norm_backward_cuda; Loss.cpp, zeros_like with a contiguous format).
_CONTIGUOUS = frozenset(
    {
        _aten._log_softmax_backward_data.default,
        _aten.native_layer_norm_backward.default,
        _aten.mse_loss_backward.default,
        _aten.smooth_l1_loss_backward.default,
        _aten.huber_loss_backward.default,
    }
)
# Views of contiguous tensors have the strides of contiguous ones, along dimensions of size one, too (TensorUtils.cpp,
# computeStride); fake ones keep what stood there, and matmul looks at it (LinearAlgebra.cpp, should_fold).
_VIEWS = frozenset({_aten.view.default, _aten._unsafe_view.default})
# Its fake kernel always makes the logsumexp; the real one does where a gradient is wanted (cudnn/MHA.cpp,
# run_cudnn_SDP_fprop, return_softmaxstats).
_CUDNN = _aten._scaled_dot_product_cudnn_attention.default
LAID_OTHERWISE = _AS_THE_GRADIENT | _CONTIGUOUS | _VIEWS | {_CUDNN}
"""The operations whose results `laid_as_by_kernel` may lay otherwise."""

# Updates that allocate nothing and have no fake kernel (FusedSgdKernel.cu, FusedAdagradKernel.cu).
ONLY_IN_PLACE = frozenset({_aten._fused_sgd_.default, _aten._fused_adagrad_.default})

_NODES_INTO_NEW_ZEROS = frozenset(
    {
        "IndexBackward0",
        "IndexSelectBackward0",
        "GatherBackward0",
        "TopkBackward0",
        "SortBackward0",
        "SortBackward1",
        "MaxBackward0",
        "MinBackward0",
        "MedianBackward1",
        "KthvalueBackward0",
        "ModeBackward0",
        "CummaxBackward0",
    }
)

REWRITTEN = frozenset({_add, *_CHAINED, *_INTO_NEW_ZEROS})
"""The operations that `in_place` may have another for."""

# References to a gradient that only autograd's input buffer holds, and to its storage, as a dispatch mode sees them:
# the Python objects made for the call count too.
_SOLE = (4, 2)


def sole_owner(tensor: torch.Tensor) -> bool:
    """Return whether nobody but the caller's argument holds the tensor or its storage, from inside a dispatch mode."""
    owned: Any = tensor
    counts = owned._use_count(), torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)
    return counts[0] <= _SOLE[0] and counts[1] <= _SOLE[1]


def storage_bytes(args: tuple[Any, ...], size: int) -> int:
    """Return the bytes of the storage that one of `FULL_STORAGE` makes for a result of `size` bytes, in a real run."""
    return max(size, elementwise_bytes(args))


def elementwise_bytes(args: tuple[Any, ...]) -> int:
    """Return the bytes of a loss of all elements of the first two arguments."""
    broadcast: Any = torch.broadcast_shapes
    elements = int(broadcast(args[0].shape, args[1].shape).numel())
    return elements * torch.result_type(args[0], args[1]).itemsize


def is_dense(tensor: torch.Tensor) -> bool:
    """Return whether the elements fill one block of memory without overlap, in any order of dimensions."""
    if tensor.is_contiguous():
        return True
    expected = 1
    for step, size in sorted((step, size) for size, step in zip(tensor.shape, tensor.stride()) if size != 1):
        if step != expected:
            return False
        expected *= size
    return True


def laid_as_by_kernel(func: Any, result: Any, args: tuple[Any, ...]) -> Any:
    """Return what an operation of `LAID_OTHERWISE` gave, its elements in the order in which the kernel writes them."""
    if func is _CUDNN:
        out, logsumexp, *rest = result
        return result if args[4] else (out, logsumexp.new_empty(0), *rest)
    if func in _VIEWS and not (1 in result.shape and args[0].is_contiguous()):
        return result
    if isinstance(result, tuple):
        return (laid_as_by_kernel(func, result[0], args), *result[1:])
    if result is None or not result.dim() or not is_dense(result):
        return result
    wanted = tuple(itertools.accumulate(result.shape[:0:-1], lambda step, size: step * max(size, 1), initial=1))[::-1]
    if func in _AS_THE_GRADIENT:
        wanted = args[0].stride() if is_dense(args[0]) else result.stride()
    return result if result.stride() == wanted else result.as_strided(result.shape, wanted, result.storage_offset())


def in_place(func: Any, args: tuple[Any, ...], asked_device: bool, node: Any) -> Any:
    """Return the in-place operation a real run takes instead of `func` in a backward, or None.

    `asked_device`: the operation before was ``prim.device``; `node`: the backward node at work.
    """
    if func is _add:
        # input_buffer.cpp, accumulate(): adds into the first gradient if the buffer is its only owner and it is dense.
        # The engine asks each arriving gradient for its device just before; no other addition does.
        if asked_device and isinstance(args[1], torch.Tensor) and not torch.is_grad_enabled():
            old, new = args
            if old.shape == new.shape and old.dtype == new.dtype and sole_owner(old) and is_dense(old):
                return _aten.add_.Tensor
        return None
    if func in _CHAINED and node is not None and node.name() == "BinaryCrossEntropyWithLogitsBackward0":
        return _CHAINED[func] if sole_owner(args[0]) else None
    update = _INTO_NEW_ZEROS.get(func)
    if update is not None and node is not None and node.name() in _NODES_INTO_NEW_ZEROS:
        return update
    return None
