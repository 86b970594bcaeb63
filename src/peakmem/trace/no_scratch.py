"""Operations whose CUDA kernels take no memory but for their results.

What torch itself tags as pointwise, views, and the names below. Files are torch 2.13's, under aten/src/ATen/native.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

_LISTS: dict[str, str] = {
    # cuda/TensorFactories.cu, Fill.cu, RangeFactories.cu, DistributionTemplates.h: they write a new tensor or one given
    "made": """
arange bernoulli cauchy empty empty_like empty_permuted empty_strided exponential eye fill full full_like geometric
linspace log_normal logspace new_empty new_empty_strided new_full new_ones new_zeros normal ones ones_like rand
rand_like randint randint_like randn randn_like scalar_tensor tril_indices triu_indices uniform zero zeros zeros_like
""",
    # cuda/Copy.cu on one device, Shape.cu, IndexKernel.cu, Indexing.cu without accumulation, ScatterGatherKernel.cu (by
    # atomic additions), TriangularOps.cu, ReflectionPad.cu, ReplicationPadding.cu; TensorShape.cpp
    "moved": """
_reshape_copy _to_copy _unsafe_view cat clone constant_pad_nd copy diag_embed diagonal_backward diagonal_scatter flip
gather index index_add index_copy index_fill index_select lift lift_fresh lift_fresh_copy masked_fill pixel_shuffle
pixel_unshuffle reflection_pad1d reflection_pad1d_backward reflection_pad2d reflection_pad2d_backward reflection_pad3d
reflection_pad3d_backward repeat replication_pad1d replication_pad1d_backward replication_pad2d
replication_pad2d_backward replication_pad3d replication_pad3d_backward roll scatter scatter_add select_backward
select_scatter slice_backward slice_scatter stack tril triu unfold_backward _unsafe_index _chunk_cat
native_channel_shuffle split_with_sizes_copy view_copy expand_copy
""",
    # cuda/Activation*.cu, BinaryOps, Loss.cu: element by element though not tagged so
    "pointwise": """
_masked_scale _prelu_kernel _prelu_kernel_backward floor_divide binary_cross_entropy_backward complex elu
elu_backward glu glu_backward hardshrink_backward hardsigmoid_backward hardswish hardswish_backward hardtanh_backward
huber_loss_backward leaky_relu_backward log_sigmoid_backward log_sigmoid_forward mish_backward mse_loss_backward
native_dropout polar rrelu_with_noise rrelu_with_noise_backward smooth_l1_loss_backward soft_margin_loss_backward
softplus_backward softshrink_backward
""",
    # cuda/SoftMax.cu, layer_norm_kernel.cu, Loss.cu, NLLLoss2d.cu, Embedding.cu, WeightNorm.cu: rows in shared memory;
    # the losses of all elements that are reduced afterwards are counted as tensors
    "rows": """
_fused_rms_norm _log_softmax _log_softmax_backward_data _safe_softmax _softmax _softmax_backward_data
_weight_norm_interface embedding huber_loss mse_loss native_layer_norm nll_loss2d_backward nll_loss2d_forward
nll_loss_backward nll_loss_forward smooth_l1_loss binary_cross_entropy
""",
    # cuda/*Pool*.cu, UpSample*.cu, GridSampler.cu: one thread for each result, atomic additions backward
    "pictures": """
_adaptive_avg_pool2d _adaptive_avg_pool2d_backward _upsample_bicubic2d_aa _upsample_bilinear2d_aa
_upsample_bilinear2d_aa_backward _upsample_nearest_exact2d adaptive_max_pool2d adaptive_max_pool2d_backward avg_pool2d
avg_pool2d_backward avg_pool3d avg_pool3d_backward grid_sampler_2d grid_sampler_2d_backward max_pool2d_with_indices
max_pool2d_with_indices_backward max_pool3d_with_indices max_pool3d_with_indices_backward upsample_bicubic2d
upsample_bicubic2d_backward upsample_bilinear2d upsample_bilinear2d_backward upsample_linear1d
upsample_linear1d_backward upsample_nearest1d upsample_nearest1d_backward upsample_nearest2d
upsample_nearest2d_backward upsample_nearest3d upsample_nearest3d_backward upsample_trilinear3d
upsample_trilinear3d_backward
""",
    # flash_attn/flash_api.cpp: without a split over keys, as training has it
    "attention": "_scaled_dot_product_flash_attention",
    # cuda/fused_adam_impl.cu and its like, AmpKernels.cu, MultiTensorApply.cuh: addresses are arguments of the kernel
    "optimizers": """
_amp_foreach_non_finite_check_and_unscale _amp_update_scale _fused_adagrad _fused_adam _fused_adamw _fused_sgd
""",
    # nothing runs on the device, or a number is copied to the host
    "nothing": """
_assert_async _local_scalar_dense _make_dep_token _functional_assert_async _assert_scalar _assert_tensor_metadata device
equal is_same_size resize resize_as set sym_numel sym_size sym_storage_offset sym_stride
""",
}
_NAMES = frozenset(name for names in _LISTS.values() for name in names.split())


@cache
def takes_none(func: Any) -> bool:
    """Return whether an operation is known to take no memory but for its results."""
    tags = func.tags
    if torch.Tag.pointwise in tags or torch.Tag.inplace_view in tags:
        return True
    if torch.Tag.reduction in tags:
        return False
    returns = [value.alias_info for value in func._schema.returns]
    if returns and all(alias is not None and not alias.is_write for alias in returns):
        return True  # a view
    name = func._schema.name.partition("::")[2]
    plain = name.removesuffix("_") if not name.startswith("__") else name
    if plain in _NAMES:
        return True
    if name.startswith("_foreach_"):
        return plain not in ("_foreach_norm", "_foreach_max", "_foreach_powsum")
    return any(torch.Tag.pointwise in overload.tags for overload in _siblings(plain))


def _siblings(name: str) -> tuple[Any, ...]:
    """Return the operations of that name and of its in-place form: not all of a pointwise operation's are tagged."""
    packets = (getattr(torch.ops.aten, each, None) for each in (name, f"{name}_"))
    return tuple(getattr(packet, word) for packet in packets if packet is not None for word in packet.overloads())
