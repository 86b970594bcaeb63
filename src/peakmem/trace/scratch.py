"""Memory that kernels take for themselves, which no trace of tensors can see: by operation, where it can be said.

`KNOWN`: operation -> rule from its arguments to (name, bytes). `UNKNOWN`: operation -> why no size is given; the ledger
lists those that ran. Sources are files of torch 2.13; nothing here was measured on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

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
    apart = (x for x in operands if isinstance(x, torch.Tensor) and x.dim() == 2 and not _packed(x))
    return tuple(("gradient made dense", x.numel() * x.element_size()) for x in apart)


def _packed(x: torch.Tensor) -> bool:
    rows, columns = x.shape
    first, second = x.stride()
    return (second == 1 and first >= max(1, columns)) or (first == 1 and second >= max(1, rows))


def norms(tensors: Any, *rest: Any) -> Pieces:
    """Partial sums: one number for each 65,536 elements of the largest tensor, for every tensor."""
    pieces = max((-(-t.numel() // 65536) for t in tensors), default=0)
    return (("norms of pieces of gradients", 4 * len(tensors) * pieces),)


_CUDNN = "cudnn-frontend, node/scaled_dot_product_flash_attention.h"
_BLAS = Rule(products, "aten/src/ATen/native/cuda/Blas.cpp, prepare_matrix_for_cublas")
KNOWN: dict[Any, Rule] = {
    _aten.mm.default: _BLAS,
    _aten.addmm.default: _BLAS,
    _aten._foreach_norm.Scalar: Rule(norms, "aten/src/ATen/native/cuda/ForeachReduceOp.cu, kChunkSize"),
    _aten._scaled_dot_product_flash_attention_backward.default: Rule(flash, "flash_attn/flash_api.cpp, mha_bwd"),
    _aten._scaled_dot_product_efficient_attention_backward.default: Rule(
        efficient, "mem_eff_attention/kernel_backward.h, workspace_size"
    ),
    _aten._scaled_dot_product_cudnn_attention_backward.default: Rule(cudnn, _CUDNN),
    _aten.embedding_dense_backward.default: Rule(
        embedding, "aten/src/ATen/native/cuda/EmbeddingBackwardKernel.cu, NROWS_PER_THREAD"
    ),
}

_SORTED = "sorting takes copies of keys and indices"
UNKNOWN: dict[Any, str] = {
    _aten.convolution.default: "cuDNN chooses its workspace when it runs",
    _aten.convolution_backward.default: "cuDNN chooses its workspace when it runs",
    _aten.native_batch_norm.default: "cuDNN may take a workspace",
    _aten._native_batch_norm_legit.default: "cuDNN may take a workspace",
    _aten.native_group_norm_backward.default: "a few numbers for each sample and channel",
    _aten._grouped_mm.default: "pointers and tables of the groups, below 1 MiB",
    _aten.sort.default: _SORTED,
    _aten.sort.stable: _SORTED,
    _aten.topk.default: "counters for each row",
    _aten.index_put_.default: _SORTED,
    _aten._index_put_impl_.default: _SORTED,
    _aten._unique2.default: _SORTED,
    _aten._cudnn_rnn.default: "cuDNN chooses its workspace when it runs",
    _aten._cudnn_rnn_backward.default: "cuDNN chooses its workspace when it runs",
    _aten._ctc_loss.default: "cuDNN may take a workspace",
}

NOTED = frozenset({*KNOWN, *UNKNOWN})
"""The operations that this module has a word on."""


def not_counted(unknown: Iterable[Any], own: Iterable[str]) -> tuple[str, ...]:
    """Return the note on operations whose scratch is not counted. `own`: names of operations that are not torch's."""
    by_reason: dict[str, list[str]] = {}
    for func in unknown:
        name = func.name().removeprefix("aten::").split(".")[0]
        by_reason.setdefault(UNKNOWN[func], []).append(name)
    for name in own:
        by_reason.setdefault("not an operation of torch's", []).append(name)
    if not by_reason:
        return ()
    told = "; ".join(f"{', '.join(sorted(set(names)))} ({reason})" for reason, names in sorted(by_reason.items()))
    return (f"memory inside these kernels is not known and not counted: {told}",)
