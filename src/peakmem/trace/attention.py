"""``scaled_dot_product_attention`` as the chosen GPU would run it.

Repeats the steps of aten/src/ATen/native/transformers/attention.cpp (torch 2.13) around each fused kernel: boolean
masks become additive ones, head sizes are padded for flash, masks are padded for the efficient kernel.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from peakmem.tables.kernels import GPU, Attention, choose

_MAJOR, _MINOR = torch.__version__.split(".")[:2]
VERSION = int(_MAJOR), int(_MINOR)


class AttentionOnGPU:
    """Stands in for ``torch.nn.functional.scaled_dot_product_attention``; `calls` counts the kernels taken.

    It must replace the module's attribute: a function mode is not active in autograd's threads, where checkpointed
    layers run again.
    """

    def __init__(self, gpu: GPU, math_kernel: Callable[..., Tensor], only: str = "") -> None:
        self.gpu, self.math_kernel, self.only = gpu, math_kernel, only
        self.calls: Counter[str] = Counter()
        self.adds_in_place = False
        self._casts: dict[int, tuple[Tensor, Tensor]] = {}

    def leave_autocast(self) -> None:
        """Let autocast's cached copies go, as ``torch.clear_autocast_cache`` does."""
        self._casts.clear()

    def _cast(self, tensor: Tensor) -> Tensor:
        """Return what autocast makes of an argument; copies of fp32 leaves that want a gradient are cached, such as
        T5's position bias of zeros where layers are checkpointed (autocast_mode.cpp, cached_cast)."""
        dtype = torch.get_autocast_dtype("cuda")
        if tensor.dtype == dtype:
            return tensor
        if id(tensor) in self._casts:
            return self._casts[id(tensor)][1]
        copy: Tensor = torch.ops.aten._to_copy(tensor, dtype=dtype)
        leaf = tensor.is_leaf and tensor.requires_grad and not tensor._is_view()
        if leaf and tensor.dtype == torch.float32 and torch.is_autocast_cache_enabled():
            self._casts[id(tensor)] = tensor, copy
        return copy

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        training = torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad)
        if torch.is_autocast_enabled("cuda"):
            # The operator is on autocast's low-precision list; called by its parts it would not be.
            query, key, value = map(self._cast, (query, key, value))
            if attn_mask is not None and attn_mask.is_floating_point():
                attn_mask = self._cast(attn_mask)
        call = Attention(
            dtype=str(query.dtype).removeprefix("torch."),
            head=query.shape[-1],
            value_head=value.shape[-1],
            queries=query.shape[-2],
            keys=key.shape[-2],
            masked=attn_mask is not None,
            heads=query.shape[-3] if query.dim() > 2 else 1,
            key_heads=key.shape[-3] if key.dim() > 2 else 1,
            grouped=enable_gqa,
            causal=is_causal,
            dropout=dropout_p,
            training=training,
            mask_trained=attn_mask is not None and attn_mask.requires_grad,
        )
        # A window comes as a mask, which flash does not take: torch picks another kernel for those layers.
        only = "" if self.only == "flash" and attn_mask is not None else self.only
        kernel = choose(call, self.gpu, VERSION, only) if query.dim() == 4 else "math"
        self.calls[kernel] += 1
        if kernel == "math":
            self.adds_in_place = not chooses()
            try:
                return self.math_kernel(
                    query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
                )
            finally:
                self.adds_in_place = False
        return _fused(kernel, query, key, value, attn_mask, dropout_p, is_causal, scale, training)


def chooses() -> bool:
    """Whether selective checkpointing's own dispatch mode is on: as in a layer that is checkpointed, and not beside it.

    A real run is out of place there, too, where it asks for a subclass (ATen's isTensorSubclassLike).
    """
    return any(type(mode).__module__ == "torch.utils.checkpoint" for mode in _get_current_dispatch_mode_stack())


def _additive(mask: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.where(mask, 0.0, torch.scalar_tensor(-math.inf, dtype=dtype, device=mask.device))


def _aligned(mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """Return the mask with rows that begin at multiples of eight elements, for every head."""
    keys = mask.shape[-1]
    if mask.stride(-1) != 1 or any(step % 8 for step in mask.stride()[:-1]):
        mask = torch.nn.functional.pad(mask, (0, 8 - keys % 8))[..., :keys]
    return mask.expand(query.shape[0], query.shape[1], query.shape[2], key.shape[2])


def _fused(
    kernel: str,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout: float,
    causal: bool,
    scale: float | None,
    training: bool,
) -> Tensor:
    aten: Any = torch.ops.aten
    if kernel == "flash":
        head = query.shape[-1]
        gap = -head % 8
        if gap:
            query, key, value = (torch.nn.functional.pad(t, (0, gap)) for t in (query, key, value))
        scale = scale or 1 / math.sqrt(head)
        out = aten._scaled_dot_product_flash_attention(query, key, value, dropout, causal, False, scale=scale)[0]
        return out[..., :head] if gap else out  # type: ignore[no-any-return]
    mask = _additive(mask, query.dtype)
    if kernel == "efficient":
        mask = None if mask is None else _aligned(mask, query, key)
        run = aten._scaled_dot_product_efficient_attention
    else:
        run = partial(aten._scaled_dot_product_cudnn_attention, return_debug_mask=False)
    return run(query, key, value, mask, training, dropout, causal, scale=scale)[0]  # type: ignore[no-any-return]
