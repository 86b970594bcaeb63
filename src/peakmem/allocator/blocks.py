"""Blocks, and the pools that keep the free ones.

A segment is a chain of neighbouring blocks. A pool holds the free blocks of one stream and one size class
(small or large), sorted by size, then address. Rules: c10/cuda/CUDACachingAllocator.cpp (get_free_block,
should_split, try_merge_blocks), torch 2.13.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Final

from peakmem.allocator.settings import MIN_BLOCK, SMALL_SIZE, UNLIMITED, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

FREE: Final = 0
LIVE: Final = 1
WAITING: Final = 2
"""Freed by the program, but another stream may still use it."""
UNMAPPED: Final = 3
"""Addresses of an expandable segment without memory behind them."""

ADDRESS_BITS: Final = 64


class Block:
    """Neighbouring bytes of one segment in one state: what `Allocator.allocate` hands out."""

    __slots__ = ("address", "following", "pool", "preceding", "requested", "since", "size", "state", "used")

    def __init__(self, pool: Pool, address: int, size: int, state: int) -> None:
        self.pool = pool
        self.address = address
        self.size = size
        self.state = state
        self.requested = 0
        self.preceding: Block | None = None
        self.following: Block | None = None
        self.since = 0
        self.used = False

    @property
    def split(self) -> bool:
        """Whether the segment has other blocks too: it cannot be given back then."""
        return self.preceding is not None or self.following is not None

    def chain(self) -> Iterator[Block]:
        """This block and all that follow it in its segment."""
        block: Block | None = self
        while block is not None:
            yield block
            block = block.following

    def cut(self, size: int) -> Block:
        """Shortens this block to `size` bytes and returns the rest, in the same state and in no pool."""
        rest = Block(self.pool, self.address + size, self.size - size, self.state)
        self.size = size
        rest.preceding = self
        rest.following = after = self.following
        if after is not None:
            after.preceding = rest
        self.following = rest
        return rest

    def absorb(self) -> None:
        """Takes in the block that follows. The left one survives, so a segment's first block stays the same."""
        gone = self.following
        assert gone is not None
        self.size += gone.size
        self.following = after = gone.following
        if after is not None:
            after.preceding = self


class Pool:
    """The free blocks of one stream and size class; best fit is the smallest that is large enough, and of
    equals the one with the lowest address."""

    __slots__ = (
        "_blocks",
        "_keys",
        "expandable",
        "large_cap",
        "ranges",
        "rounding",
        "small",
        "split_above",
        "stream",
        "unmapped",
    )

    def __init__(self, stream: int, small: bool, settings: Settings) -> None:
        self.stream = stream
        self.small = small
        self.expandable = settings.expandable_segments
        self.large_cap = UNLIMITED if settings.max_split_size is None else settings.max_split_size
        self.rounding = settings.max_non_split_rounding or settings.large_segment_size
        self.split_above = MIN_BLOCK - 1 if small or self.expandable else SMALL_SIZE
        self.ranges: list[Block] = []
        self.unmapped: list[Block] = []
        self._keys: list[int] = []
        self._blocks: dict[int, Block] = {}

    def __iter__(self) -> Iterator[Block]:
        """Free blocks, smallest first."""
        return map(self._blocks.__getitem__, list(self._keys))

    def put(self, block: Block, now: int = 0) -> None:
        """Keeps a free block; `now` is the allocator's clock, for the age of an unsplit one."""
        block.state = FREE
        block.since = now
        key = (block.size << ADDRESS_BITS) | block.address
        insort(self._keys, key)
        self._blocks[key] = block

    def remove(self, block: Block) -> None:
        key = (block.size << ADDRESS_BITS) | block.address
        del self._keys[bisect_left(self._keys, key)]
        del self._blocks[key]

    def take(self, size: int) -> Block | None:
        """Best fit for `size` (rounded) bytes, taken out of the pool, or None.

        With max_split_size, larger blocks are kept for larger requests, and those may waste no more than
        max_non_split_rounding. Expandable: a block that can still grow counts with all it can grow to.
        """
        keys = self._keys
        at = bisect_left(keys, size << ADDRESS_BITS)
        if at == len(keys):
            return None
        if self.expandable:
            while at + 1 < len(keys) and _reach(self._blocks[keys[at + 1]]) < _reach(self._blocks[keys[at]]):
                at += 1
        if self.large_cap < UNLIMITED:
            found = keys[at] >> ADDRESS_BITS
            if size < self.large_cap:
                if found >= self.large_cap:
                    return None
            elif found >= size + self.rounding:
                return None
        return self._blocks.pop(keys.pop(at))

    def at_least(self, size: int) -> list[Block]:
        """Free blocks of `size` bytes or more, smallest first."""
        return [self._blocks[key] for key in self._keys[bisect_left(self._keys, size << ADDRESS_BITS) :]]

    def splits(self, block: Block, size: int) -> bool:
        """Whether what `size` bytes leave of the block becomes a free block of its own. A large remainder of
        1 MiB or less does not: it counts as allocated."""
        if block.size - size <= self.split_above:
            return False
        return self.small or self.expandable or size < self.large_cap

    def join(self, block: Block) -> tuple[Block, int]:
        """Merges a free block that is in no pool yet with free neighbours: the merged block, bytes taken in."""
        taken = 0
        before = block.preceding
        if before is not None and before.state == FREE:
            self.remove(before)
            taken = before.size
            before.absorb()
            block = before
        after = block.following
        if after is not None and after.state == FREE:
            self.remove(after)
            taken += after.size
            block.absorb()
        return block, taken


def _reach(block: Block) -> int:
    after = block.following
    return block.size + after.size if after is not None and after.state == UNMAPPED else block.size
