"""Memory that kernels take for themselves, which no trace of tensors can see: by operation, where it can be said.

`KNOWN`: operation -> rule from its arguments to (name, bytes). Of the others that ran, those that are not known to take
none (`no_scratch`) are listed in the ledger; `UNKNOWN`: why no size is given. Sources are files of torch 2.13; nothing
here was measured on a GPU.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

from .no_scratch import takes_none

_aten = torch.ops.aten
Pieces = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Rule:
    """How much an operation takes until it returns, and which file says so."""

    pieces: Callable[..., Pieces]
    source: str


@dataclass(frozen=True)
class Taken:
    """One operation's scratch: `begin` and `end` are the numbers of events before and after it."""

    begin: int
    end: int
    op: str
    module: str
    pieces: Pieces
    source: str


def up(size: int, to: int) -> int:
    """Return the next multiple of `to`."""
    return -(-size // to) * to


def flash(grad: Any, query: Any, key: Any, *rest: Any) -> Pieces:
    """An fp32 accumulator of dq, one number per row, and dk, dv of every query head where heads are shared."""
    b, a, s, d = query.shape
    rows = b * a * up(s, 128)
    found: Pieces = (("dq accumulator", 4 * rows * up(d, 64 if d > 128 else 32)), ("softmax rows", 4 * rows))
    if key.shape[1] == a:
        return found
    wide = query.element_size() * b * key.shape[2] * a * d
    return (*found, ("dk of every query head", wide), ("dv of every query head", wide))


def efficient(grad: Any, query: Any, *rest: Any) -> Pieces:
    """Row sums, and an fp32 accumulator of dq in tiles of 64 × 64 (heads up to 64) or 128 × 128."""
    b, a, s, d = query.shape
    side = 64 if d <= 64 else 128
    tiles = b * a * (4 * up(s, side) * up(d, side) + 16 * (up(s, side) // side) * (up(d, side) // side))
    return ("row sums", 4 * b * a * s), ("dq accumulator", tiles)


def efficient_forward(query: Any, key: Any, value: Any, *rest: Any, **options: Any) -> Pieces:
    """The output in fp32 where 16-bit heads are wider than 128: they do not stay in registers."""
    if query.element_size() > 2 or max(key.shape[3], value.shape[3]) <= 128:
        return ()
    return (("output in fp32", 4 * query.shape[:3].numel() * value.shape[3]),)


def masked_scatter(x: Any, mask: Any, *rest: Any) -> Pieces:
    """How many elements are overwritten before each, and the mask for every element."""
    return ("elements overwritten before", 8 * x.numel()), ("places, for every element", x.numel())


def masked_scatter_backward(grad: Any, mask: Any, sizes: Any) -> Pieces:
    """masked_select lists three numbers of each element that was overwritten."""
    return (("places of what was overwritten", 24 * math.prod(sizes)),)


def cudnn(grad: Any, query: Any, *rest: Any) -> Pieces:
    """The front end's part: dq in fp32 and one number per row. The engine's own part is not known."""
    b, a, s, d = query.shape
    return ("dq accumulator", 4 * b * a * s * d), ("softmax rows", 4 * b * a * s)


def embedding(grad: Any, indices: Any, vocabulary: int, *rest: Any) -> Pieces:
    """More than 3072 rows are summed in fp32 by segments of at most ten equal tokens."""
    rows, width = indices.numel(), grad.shape[-1]
    if rows <= 3072:
        return ()
    return (("sums of equal tokens", 4 * width * (rows // 10 + min(rows, vocabulary))),)


def products(*operands: Any, **options: Any) -> Pieces:
    """An operand with gaps, as the gradient that sum() hands on, is copied."""
    apart = (x for x in operands if isinstance(x, torch.Tensor) and x.dim() > 1 and not _packed(x))
    return tuple(("operand made dense", x.numel() * x.element_size()) for x in apart)


def _packed(x: torch.Tensor) -> bool:
    rows, columns = x.shape[-2:]
    first, second = x.stride()[-2:]
    return (second == 1 and first >= max(1, columns)) or (first == 1 and second >= max(1, rows))


def norms(tensors: Any, *rest: Any) -> Pieces:
    """Partial sums: one number for each 65,536 elements of the largest tensor, for every tensor."""
    pieces = max((-(-t.numel() // 65536) for t in tensors), default=0)
    return (("norms of pieces of gradients", 4 * len(tensors) * pieces),)


_CUDNN = "cudnn-frontend, node/scaled_dot_product_flash_attention.h"
_BLAS = Rule(products, "aten/src/ATen/native/cuda/Blas.cpp, prepare_matrix_for_cublas")
_SCATTERED = "aten/src/ATen/native/cuda/IndexKernel.cpp, masked_scatter__cuda"
_BATCHED = Rule(products, "aten/src/ATen/native/cuda/Blas.cpp, prepare_batch_matrix_for_cublas")
KNOWN: dict[Any, Rule] = {
    _aten.mm.default: _BLAS,
    _aten.addmm.default: _BLAS,
    _aten.bmm.default: _BATCHED,
    _aten.baddbmm.default: _BATCHED,
    _aten._foreach_norm.Scalar: Rule(norms, "aten/src/ATen/native/cuda/ForeachReduceOp.cu, kChunkSize"),
    _aten._scaled_dot_product_flash_attention_backward.default: Rule(flash, "flash_attn/flash_api.cpp, mha_bwd"),
    _aten._scaled_dot_product_efficient_attention_backward.default: Rule(
        efficient, "mem_eff_attention/kernel_backward.h, workspace_size"
    ),
    _aten._scaled_dot_product_efficient_attention.default: Rule(
        efficient_forward, "mem_eff_attention/kernel_forward.h, kNeedsOutputAccumulatorBuffer"
    ),
    _aten.masked_scatter.default: Rule(masked_scatter, _SCATTERED),
    _aten.masked_scatter_.default: Rule(masked_scatter, _SCATTERED),
    _aten.masked_scatter_backward.default: Rule(
        masked_scatter_backward, "aten/src/ATen/native/cuda/IndexKernel.cpp, masked_select_out_cuda_impl"
    ),
    _aten._scaled_dot_product_cudnn_attention_backward.default: Rule(cudnn, _CUDNN),
    _aten.embedding_dense_backward.default: Rule(
        embedding, "aten/src/ATen/native/cuda/EmbeddingBackwardKernel.cu, NROWS_PER_THREAD"
    ),
}

_SORTED = "sorting takes copies of keys and indices"
_CUDNN_CHOOSES = "cuDNN chooses its workspace when it runs"
_CUDNN_MAY = "cuDNN may take a workspace"
_PARTIAL = "partial sums, KiB to a few MiB"  # cuda/Reduce.cuh, global_memory_size; layer_norm_kernel.cu
_REASONS: dict[str, str] = {
    _CUDNN_CHOOSES: "convolution convolution_backward _cudnn_rnn _cudnn_rnn_backward",
    _CUDNN_MAY: """
native_batch_norm native_batch_norm_backward _native_batch_norm_legit _batch_norm_with_update batch_norm_backward
cudnn_batch_norm cudnn_batch_norm_backward _ctc_loss _ctc_loss_backward _scaled_dot_product_cudnn_attention
""",
    "a few numbers for each sample and channel": "native_group_norm native_group_norm_backward",
    "pointers and tables of the groups, below 1 MiB": "_grouped_mm",
    _SORTED: """
sort index_put _index_put_impl _unique2 unique_dim unique_consecutive argsort msort _unsafe_index_put
""",
    "counters for each row": "topk",
    _PARTIAL: "native_layer_norm_backward _fused_rms_norm_backward cumsum cumprod logcumsumexp",
}
UNKNOWN: dict[str, str] = {name: reason for reason, names in _REASONS.items() for name in names.split()}
"""Why no size is given, by the operation's name."""
_NO_RULE = "no rule for them"
_OTHERS = "not an operation of torch's"


def not_counted(ran: Iterable[Any], own: Iterable[str]) -> tuple[str, ...]:
    """Return the note on operations whose scratch is not counted.

    `ran`: the operations that ran. `own`: names of operations that are not torch's.
    """
    by_reason: dict[str, set[str]] = {}
    for func in ran:
        if func.namespace != "aten" or func in KNOWN or takes_none(func):
            continue
        name = func._schema.name.removeprefix("aten::")
        usual = _PARTIAL if torch.Tag.reduction in func.tags or name.startswith("_foreach_") else _NO_RULE
        by_reason.setdefault(UNKNOWN.get(name.removesuffix("_"), usual), set()).add(name)
    if own := set(own):
        by_reason[_OTHERS] = own
    if not by_reason:
        return ()
    told = "; ".join(f"{', '.join(sorted(names))} ({reason})" for reason, names in sorted(by_reason.items()))
    return (f"memory inside these kernels is not known and not counted: {told}",)
