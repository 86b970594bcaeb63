"""Random use, with everything that must hold checked after every step."""

from __future__ import annotations

import random
from itertools import pairwise

from hypothesis import given, settings, strategies as st

from peakmem.allocator import Allocator, OutOfMemory, Segment, Settings
from peakmem.allocator.blocks import Block
from peakmem.allocator.settings import MIB, SMALL_SIZE, rounded

SIZES = st.one_of(
    st.integers(1, 5000),
    st.integers(MIB - 1024, MIB + 1024),
    st.integers(1, 12 * MIB),
    st.integers(10 * MIB - 1024, 80 * MIB),
)
OPTIONS = st.builds(
    Settings,
    expandable_segments=st.booleans(),
    max_split_size=st.sampled_from([None, 20 * MIB, 32 * MIB]),
    roundup_power2_divisions=st.sampled_from([0, 4, ((8, 2), (64, 8), (None, 1))]),
    garbage_collection_threshold=st.sampled_from([0.0, 0.4, 0.8]),
    memory_fraction=st.sampled_from([1.0, 0.6]),
    capacity=st.sampled_from([120 * MIB, 500 * MIB, 1 << 40]),
    outside=st.sampled_from([0, 11 * MIB + 1]),
)


def check(allocator: Allocator, live: list[Block]) -> None:
    layout = allocator.layout()
    for segment, after in pairwise(layout):
        assert segment.address + segment.size <= after.address, "segments overlap"
    for segment in layout:
        check_pieces(segment)
    places = {(s.address + p.offset, p.size) for s in layout for p in s.pieces if p.state == "active_allocated"}
    assert places == {(block.address, block.size) for block in live}, "the layout disagrees with what was handed out"
    assert allocator.reserved == sum(segment.size for segment in layout)
    assert allocator.allocated == sum(block.size for block in live)
    assert allocator.requested == sum(block.requested for block in live)
    assert allocator.requested <= allocator.allocated <= allocator.active <= allocator.reserved
    split = (
        piece.size
        for segment in layout
        for piece in segment.pieces
        if piece.state == "inactive" and len(segment.pieces) > 1 and not segment.expandable
    )
    assert allocator.inactive_split == sum(split)
    limits = allocator.settings
    assert limits.capacity is None or allocator.reserved + limits.outside <= limits.capacity
    for name in ("requested", "allocated", "active", "reserved", "inactive_split", "segments"):
        assert getattr(allocator, name) <= getattr(allocator, f"{name}_peak")


def check_pieces(segment: Segment) -> None:
    end = 0
    free_before = False
    for piece in segment.pieces:
        assert piece.offset == end, "pieces leave a gap or overlap"
        assert piece.size > 0
        assert piece.size % 512 == 0
        end += piece.size
        free = piece.state == "inactive"
        assert not (free and free_before), "free neighbours were not merged"
        free_before = free
    assert end == segment.size


def best_fit(layout: tuple[Segment, ...], size: int, small: bool, stream: int) -> tuple[int, int] | None:
    """By looking at every free piece: the smallest that is large enough, then the lowest."""
    fits = [
        (piece.size, segment.address + piece.offset)
        for segment in layout
        if segment.small is small and segment.stream == stream
        for piece in segment.pieces
        if piece.state == "inactive" and piece.size >= size
    ]
    return min(fits, default=None)


@settings(max_examples=60, deadline=None)
@given(OPTIONS, st.lists(st.tuples(SIZES, st.integers(0, 1)), min_size=1, max_size=12), st.randoms())
def test_invariants_hold_at_every_step(options: Settings, sizes: list[tuple[int, int]], rng: random.Random) -> None:
    allocator = Allocator(options)
    live: list[Block] = []
    plain = not options.expandable_segments and options.max_split_size is None
    for _ in range(120):
        if live and rng.random() < 0.48:
            allocator.free(live.pop(rng.randrange(len(live))))
        elif rng.random() < 0.02:
            allocator.empty_cache()
        else:
            size, stream = rng.choice(sizes)
            wanted = rounded(size, options.divisions())
            expected = best_fit(allocator.layout(), wanted, wanted <= SMALL_SIZE, stream)
            before = allocator.reserved
            try:
                block = allocator.allocate(size, stream)
            except OutOfMemory as told:
                assert not (plain and expected), "there was room"
                assert told.reserved == allocator.reserved
                continue
            live.append(block)
            assert block.size >= wanted
            if plain and expected:
                assert (block.address, allocator.reserved) == (expected[1], before), "not the best fit"
        check(allocator, live)
    for block in live:
        allocator.free(block)
    allocator.empty_cache()
    check(allocator, [])
    assert (allocator.reserved, allocator.segments, allocator.layout()) == (0, 0, ())
    assert not allocator._first_blocks


@settings(max_examples=40, deadline=None)
@given(st.lists(SIZES, min_size=1, max_size=40))
def test_reserved_never_exceeds_what_separate_segments_would_take(sizes: list[int]) -> None:
    allocator = Allocator()
    for size in sizes:
        allocator.allocate(size)
    assert allocator.reserved <= sum(allocator.settings.segment_size(rounded(size)) for size in sizes)
