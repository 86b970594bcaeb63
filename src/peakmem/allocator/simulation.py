"""The caching allocator itself: requests and frees, and the ways out when the GPU is full.

Rules: c10/cuda/CUDACachingAllocator.cpp (malloc, free, alloc_block, release_cached_blocks,
release_available_cached_blocks, garbage_collect_cached_blocks), torch 2.13. Two things here are the GPU's, not
the allocator's: cudaMalloc gives ever higher addresses, and it fails only when the bytes left do not suffice.
"""

from __future__ import annotations

from peakmem.allocator import expandable
from peakmem.allocator.blocks import FREE, LIVE, UNMAPPED, WAITING, Block, Pool
from peakmem.allocator.layout import Segment, segments
from peakmem.allocator.out_of_memory import OutOfMemory
from peakmem.allocator.settings import SMALL_SIZE, Settings, rounded
from peakmem.errors import Impossible

ENDLESS_RANGE = 1 << 46
"""Addresses of an expandable segment on a GPU without a capacity: 64 TiB."""


class Allocator:
    """The allocator of one GPU, step by step.

    The counters are those of torch.cuda.memory_stats(), all in bytes but for segments and retries:
    requested; allocated (blocks: rounding and unsplit remainders count); active (allocated, and freed blocks
    that another stream still uses); reserved (got from CUDA); inactive_split (free pieces of segments in
    use; not kept for expandable segments); segments (cudaMalloc'd ones); retries. Each has a peak since the
    start or reset_peaks(), under the same name with _peak; retries has none.
    """

    def __init__(self, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self._divisions = self.settings.divisions()
        self._small: dict[int, Pool] = {}
        self._large: dict[int, Pool] = {}
        self._first_blocks: dict[int, Block] = {}
        self._waiting: list[Block] = []
        self._next_address = 0
        self._searches = 0
        self.requested = self.requested_peak = 0
        self.allocated = self.allocated_peak = 0
        self.active = self.active_peak = 0
        self.reserved = self.reserved_peak = 0
        self.inactive_split = self.inactive_split_peak = 0
        self.segments = self.segments_peak = 0
        self.retries = 0

    def allocate(self, size: int, stream: int = 0) -> Block:
        """A block of at least `size` bytes (1 or more) for work on `stream`.

        Raises OutOfMemory when the settings' capacity or memory fraction is spent, Impossible for a size
        below 1 (PyTorch gives a tensor without bytes no block).
        """
        if size < 1:
            raise Impossible(f"an allocation has at least 1 byte, got {size}")
        wanted = (size + 511) & -512 if self._divisions is None else rounded(size, self._divisions)
        pool = (self._small if wanted <= SMALL_SIZE else self._large).get(stream)
        if pool is None:
            pool = self._pool(stream, wanted <= SMALL_SIZE)
        if self.settings.collects:
            self._searches += not pool.small
        block = pool.take(wanted)
        if block is None:
            block = self._obtain(pool, wanted, size)
        was_split = block.preceding is not None or block.following is not None
        if pool.splits(block, wanted):
            pool.put(block.cut(wanted))
            if not pool.expandable:
                assert block.following is not None
                self._inactive(-wanted if was_split else block.following.size)
        elif was_split and not pool.expandable:
            self._inactive(-block.size)
        block.state = LIVE
        block.requested = size
        self.requested += size
        self.requested_peak = max(self.requested_peak, self.requested)
        self.allocated += block.size
        self.allocated_peak = max(self.allocated_peak, self.allocated)
        self.active += block.size
        self.active_peak = max(self.active_peak, self.active)
        return block

    def free(self, block: Block) -> None:
        """Takes a block back. One that record_stream() named stays active until synchronize()."""
        if block.state != LIVE:
            raise Impossible(f"the block at {block.address:#x} is freed twice")
        self.allocated -= block.size
        if block.used:
            block.state = WAITING
            self._waiting.append(block)
        else:
            self._cache(block)

    def record_stream(self, block: Block, stream: int) -> None:
        """Says that work on another stream uses the block too, like torch.Tensor.record_stream."""
        block.used = block.used or stream != block.pool.stream

    def synchronize(self) -> None:
        """Lets all streams finish: blocks that waited for another stream become free. PyTorch learns of this
        at its next allocation; when that is depends on timing, so here the caller says it."""
        waiting, self._waiting = self._waiting, []
        for block in waiting:
            block.used = False
            self._cache(block)

    def empty_cache(self) -> None:
        """Gives free segments, and free pages of expandable ones, back to CUDA, like torch.cuda.empty_cache."""
        self.synchronize()
        for pool in (*self._large.values(), *self._small.values()):
            for block in pool:
                if pool.expandable:
                    self._unmap(pool, block)
                elif not block.split:
                    self._give_back(block)

    def reset_peaks(self) -> None:
        """Peaks start again from the present values, like torch.cuda.reset_peak_memory_stats."""
        self.requested_peak = self.requested
        self.allocated_peak = self.allocated
        self.active_peak = self.active
        self.reserved_peak = self.reserved
        self.inactive_split_peak = self.inactive_split
        self.segments_peak = self.segments

    def layout(self) -> tuple[Segment, ...]:
        """All segments as they are now, by address."""
        return segments(self._first_blocks.values())

    def _pool(self, stream: int, small: bool) -> Pool:
        pool = Pool(stream, small, self.settings)
        (self._small if small else self._large)[stream] = pool
        return pool

    def _cache(self, block: Block) -> None:
        self.requested -= block.requested
        self.active -= block.size
        pool = block.pool
        block, taken = pool.join(block)
        pool.put(block, self._searches)
        if not pool.expandable:
            if block.preceding is not None or block.following is not None:
                taken -= block.size
            self._inactive(-taken)

    def _inactive(self, change: int) -> None:
        self.inactive_split += change
        self.inactive_split_peak = max(self.inactive_split_peak, self.inactive_split)

    def _obtain(self, pool: Pool, wanted: int, requested: int) -> Block:
        """Memory from CUDA, by and by harder: collect garbage, free oversize blocks, free all that is cached."""
        if self.settings.collects:
            self._collect_garbage()
        block = self._new(pool, wanted)
        if block is None and self._release_oversize(pool, wanted):
            block = self._new(pool, wanted)
        if block is None:
            self.empty_cache()
            self.retries += 1
            block = self._new(pool, wanted)
        if block is None:
            raise self._out_of_memory(wanted, requested)
        return block

    def _new(self, pool: Pool, wanted: int) -> Block | None:
        """A block fresh from CUDA, in no pool: a segment, or pages of an expandable one."""
        size = self.settings.segment_size(wanted)
        limit = self.settings.limit
        if limit is not None and self.reserved + size > limit:
            return None
        if pool.expandable:
            start = expandable.room_for(pool, wanted) or self._range(pool)
            return expandable.grow(pool, start, wanted, self.settings.page_size(pool.small), self._reserve)
        if not self._reserve(size):
            return None
        self.segments += 1
        self.segments_peak = max(self.segments_peak, self.segments)
        block = Block(pool, self._next_address, size, FREE)
        self._next_address += size
        self._first_blocks[block.address] = block
        return block

    def _range(self, pool: Pool) -> Block:
        """A new range of addresses, nine eighths of the GPU, without memory behind it."""
        page = self.settings.page_size(pool.small)
        capacity = self.settings.capacity
        size = ENDLESS_RANGE if capacity is None else capacity + capacity // 8
        block = Block(pool, self._next_address, -(-size // page) * page, UNMAPPED)
        self._next_address += block.size
        self._first_blocks[block.address] = block
        pool.ranges.append(block)
        pool.unmapped.append(block)
        return block

    def _reserve(self, size: int) -> bool:
        capacity = self.settings.capacity
        if capacity is not None and self.reserved + self.settings.outside + size > capacity:
            return False
        self.reserved += size
        self.reserved_peak = max(self.reserved_peak, self.reserved)
        return True

    def _give_back(self, block: Block) -> None:
        block.pool.remove(block)
        del self._first_blocks[block.address]
        self.reserved -= block.size
        self.segments -= 1

    def _unmap(self, pool: Pool, block: Block) -> None:
        unmapped, first = expandable.unmap(pool, block, self.settings.page_size(pool.small))
        self.reserved -= unmapped
        if first.state == UNMAPPED and first.following is None:
            del self._first_blocks[first.address]
            pool.ranges.remove(first)
            pool.unmapped.remove(first)

    def _release_oversize(self, pool: Pool, wanted: int) -> bool:
        """With max_split_size: frees the smallest oversize block that suffices, else oversize blocks from the
        largest on until their sum does. False where that is not enough."""
        cap = self.settings.max_split_size
        if cap is None or pool.expandable:
            return False
        target = max(cap, wanted)
        suffices = pool.at_least(target)
        if suffices:
            self._give_back(suffices[0])
            return True
        released = 0
        for block in reversed(pool.at_least(cap)):
            if released >= target:
                break
            self._give_back(block)
            released += block.size
        return released >= target

    def _collect_garbage(self) -> None:
        """Over the threshold: frees unsplit large blocks that were not used for longer than the average, until
        under it. Age counts the searches in the large pools since the block was cached."""
        limit = self.settings.limit
        assert limit is not None
        excess = self.reserved - int(self.settings.garbage_collection_threshold * limit)
        idle = [block for pool in self._large.values() for block in pool if not block.split]
        while excess > 0 and idle:
            average = sum(self._searches - block.since for block in idle) / len(idle)
            old = [block for block in idle if self._searches - block.since >= average]
            for block in old:
                self._give_back(block)
                excess -= block.size
            idle = [block for block in idle if self._searches - block.since < average]

    def _out_of_memory(self, wanted: int, requested: int) -> OutOfMemory:
        capacity = self.settings.capacity
        assert capacity is not None
        return OutOfMemory(
            requested=requested,
            tried=self.settings.segment_size(wanted),
            capacity=capacity,
            free=capacity - self.settings.outside - self.reserved,
            outside=self.settings.outside,
            allowed=self.settings.limit,
            allocated=self.allocated,
            reserved=self.reserved,
            device=self.settings.device,
        )
