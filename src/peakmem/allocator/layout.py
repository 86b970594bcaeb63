"""Segments and their blocks at one moment, for a picture."""

from __future__ import annotations

from collections.abc import Iterable

from peakmem.allocator.blocks import FREE, LIVE, UNMAPPED, Block
from peakmem.immutable import immutable

STATES = {LIVE: "active_allocated", FREE: "inactive"}


@immutable
class Piece:
    """One block: where it begins in its segment, its bytes, the bytes asked for (0 when free), and its state
    as a memory snapshot calls it: active_allocated, active_awaiting_free or inactive."""

    offset: int
    size: int
    requested: int
    state: str


@immutable
class Segment:
    """Neighbouring bytes that the allocator got from CUDA; its pieces fill it without gaps."""

    address: int
    size: int
    stream: int
    small: bool
    expandable: bool
    pieces: tuple[Piece, ...]

    @property
    def allocated(self) -> int:
        """Bytes in live blocks."""
        return sum(piece.size for piece in self.pieces if piece.state == "active_allocated")


def segments(first_blocks: Iterable[Block]) -> tuple[Segment, ...]:
    """The segments that begin with these blocks, by address. An expandable one is a segment for every
    stretch of mapped pages, as in torch.cuda.memory_snapshot()."""
    found = []
    for first in first_blocks:
        stretch: list[Block] = []
        for block in first.chain():
            if block.state != UNMAPPED:
                stretch.append(block)
            elif stretch:
                found.append(_segment(stretch))
                stretch = []
        if stretch:
            found.append(_segment(stretch))
    return tuple(sorted(found, key=lambda segment: segment.address))


def _segment(blocks: list[Block]) -> Segment:
    first = blocks[0]
    pieces = tuple(
        Piece(
            block.address - first.address,
            block.size,
            0 if block.state == FREE else block.requested,
            STATES.get(block.state, "active_awaiting_free"),
        )
        for block in blocks
    )
    pool = first.pool
    size = sum(piece.size for piece in pieces)
    return Segment(first.address, size, pool.stream, pool.small, pool.expandable, pieces)
