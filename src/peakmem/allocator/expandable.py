"""Expandable segments: one range of addresses for each stream and size class, backed by memory page by page.

Rules: c10/cuda/CUDACachingAllocator.cpp (find_expandable_block, try_allocate_expandable_block, map_block,
unmap_block), torch 2.13: new pages go to the lowest addresses that fit, so that pieces merge again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable

from peakmem.allocator.blocks import FREE, UNMAPPED, Block, Pool


def _address(block: Block) -> int:
    return block.address


def room_for(pool: Pool, size: int) -> Block | None:
    """The first block, free or unmapped, from which `size` bytes on nothing is in use; None: a new range is
    needed."""
    for block in pool.unmapped:
        before = block.preceding
        start = before if before is not None and before.state == FREE else block
        bytes_found = 0
        for candidate in start.chain():
            if candidate.state not in (FREE, UNMAPPED):
                break
            bytes_found += candidate.size
            if bytes_found >= size:
                return start
    return None


def grow(pool: Pool, start: Block, size: int, page: int, reserve: Callable[[int], bool]) -> Block | None:
    """Maps pages from `start` on until its block holds `size` bytes; the block is then out of the pool.

    `reserve` gets bytes from the GPU or says no: then what was mapped so far stays, as a free block.
    """
    block: Block | None = start
    if start.state == UNMAPPED:
        block = _map(pool, start, min(start.size, size), page, reserve)
    while block is not None and block.size < size:
        hole = block.following
        assert hole is not None
        block = _map(pool, hole, min(size - block.size, hole.size), page, reserve)
    if block is not None:
        pool.remove(block)
    return block


def _map(pool: Pool, hole: Block, size: int, page: int, reserve: Callable[[int], bool]) -> Block | None:
    """Backs the hole's first `size` bytes, in whole pages, and puts the free block that results in the pool."""
    mapped = -(-size // page) * page
    if not reserve(mapped):
        return None
    del pool.unmapped[bisect_left(pool.unmapped, hole.address, key=_address)]
    if mapped < hole.size:
        insort(pool.unmapped, hole.cut(mapped), key=_address)
    block, _ = pool.join(hole)
    pool.put(block)
    return block


def unmap(pool: Pool, block: Block, page: int) -> tuple[int, Block]:
    """Takes the whole pages out of a free block; returns their bytes and the first block of its range."""
    first = pool.ranges[bisect_right(pool.ranges, block.address, key=_address) - 1]
    base = first.address
    begin = base + -(-(block.address - base) // page) * page
    end = base + (block.address + block.size - base) // page * page
    if begin >= end:
        return 0, first
    pool.remove(block)
    if begin > block.address:
        hole = block.cut(begin - block.address)
        pool.put(block)
    else:
        hole = block
    if hole.address + hole.size > end:
        pool.put(hole.cut(end - begin))
    hole.state = UNMAPPED
    after, before = hole.following, hole.preceding
    if after is not None and after.state == UNMAPPED:
        del pool.unmapped[bisect_left(pool.unmapped, after.address, key=_address)]
        hole.absorb()
    if before is not None and before.state == UNMAPPED:
        before.absorb()
    else:
        insort(pool.unmapped, hole, key=_address)
    return end - begin, first
