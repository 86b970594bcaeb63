"""Memory inside kernels, which no tensor owns: what attention and the backward of an embedding need.

Marked `scratch`: outside the total of tensors, inside what the allocator hands out. Sources are PyTorch 2.13's own
files; none of it was measured here.
"""

from __future__ import annotations

from peakmem.estimate.layout import BYTES, flat
from peakmem.estimate.node import Node
from peakmem.estimate.tape import Key, Tape, Tensor, current


def flash_backward(n: Node, q: Tensor, k: Tensor, grouped: bool) -> None:
    """mha_bwd: an fp32 accumulator of dq, one number per row, and dk, dv for every query head where heads are shared.

    Rows are rounded to 128, heads to 32, to 64 beyond 128. Source: flash_attn/flash_api.cpp.
    """
    b, a, s, d = q.dims
    rows = (*b, *a, f"{s[0]}^128")
    n.needs_scratch(by_size(d[0], 129, (4, (*rows, f"{d[0]}^64")), (4, (*rows, f"{d[0]}^32"))), "dq accumulator")
    n.needs_scratch((4, rows), "softmax rows")
    if grouped:
        wide: Key = (BYTES[q.dtype], (*b, *k.dims[2], *a, *d))
        n.needs_scratch(wide, "dk of every query head")
        n.needs_scratch(wide, "dv of every query head")


def cudnn_backward(n: Node, q: Tensor) -> None:
    """The front end's own workspace: dq in fp32 and one number per row; the engine's part is not known.

    Source: cudnn-frontend, node/scaled_dot_product_flash_attention.h.
    """
    n.needs_scratch((4, flat(q.dims)), "dq accumulator")
    n.needs_scratch((4, flat(q.dims[:3])), "softmax rows")


def efficient_backward(n: Node, q: Tensor) -> None:
    """Row sums, and an fp32 accumulator of dq in tiles of 64 × 64 (heads up to 64) or 128 × 128.

    Source: mem_eff_attention/kernel_backward.h, workspace_size.
    """
    b, a, s, d = q.dims
    n.needs_scratch((4, flat(q.dims[:3])), "row sums")
    tiles = {side: ("+", (4, (*b, *a, f"{s[0]}^{side}", f"{d[0]}^{side}")),
                    (16, (*b, *a, f"{s[0]}/{side}", f"{d[0]}/{side}"))) for side in (64, 128)}
    n.needs_scratch(by_size(d[0], 65, tiles[128], tiles[64]), "dq accumulator")


def efficient_forward(n: Node, q: Tensor, v: Tensor) -> None:
    """The output in fp32 where 16-bit heads are wider than 128: they do not stay in registers.

    Source: mem_eff_attention/kernel_forward.h, kNeedsOutputAccumulatorBuffer; cuda/attention.cu.
    """
    if q.dtype != "fp32":
        wide = by_size(v.dims[3][0], 129, (4, (*flat(q.dims[:3]), *v.dims[3])), (0, ()))
        current().new((), "uint8", None, f"{n.scope}/output in fp32", wide, True)


def embedding_backward(n: Node, rows: tuple[str, ...], width: tuple[str, ...], vocabulary: tuple[str, ...]) -> None:
    """More than 3072 rows are summed in fp32 by segments of at most ten equal tokens.

    Source: aten/src/ATen/native/cuda/EmbeddingBackwardKernel.cu, NROWS_PER_THREAD.
    """
    partial: Key = (4, (*width, f"({'*'.join(rows)}-9)/10"))  # rounded down
    segments: Key = ("smaller", (4, (*width, *rows)), (4, (*width, *vocabulary)))
    n.needs_scratch(("from", 3073, 1, (rows,), ("+", partial, segments), (0, ())), "sums of equal tokens")


def by_size(letter: str, least: int, large: Key, small: Key) -> Key:
    """One size from `least` on, another below."""
    return ("from", least, 1, ((letter,),), large, small)


def dense_for_product(tape: Tape, op: str, g: Tensor, label: str) -> list[Tensor]:
    """A matrix product wants dense operands: of an expanded gradient, as sum() hands it on, it makes a copy.

    Source: aten/src/ATen/native/cuda/Blas.cpp, prepare_matrix_for_cublas.
    """
    if op not in ("mm", "addmm") or len(g.memory) >= len(flat(g.dims)):
        return []
    return [tape.new(g.dims, g.dtype, None, f"{label}: gradient made dense", None, True)]


def strided_operand(n: Node, x: Tensor) -> None:
    """The same of an operand of a forward's product whose rows and columns both have gaps.

    Source: aten/src/ATen/native/cuda/Blas.cpp, prepare_batch_matrix_for_cublas.
    """
    current().new(x.dims, x.dtype, None, f"{n.scope}/operand made dense", None, True)
