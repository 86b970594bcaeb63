"""Single rules, each with the numbers that PyTorch or its authors published."""

from __future__ import annotations

import pytest
from allocator_shapes import MIB, freed, made, reserved, shape

from peakmem.allocator import Allocator, Level, Settings, replay

# PyTorch devlog of 2026-06-01, "When does fragmentation occur in the CUDA caching allocator?"


def test_devlog_small_then_large_fragments() -> None:
    events = made(8, 16, "small") + freed(8, "small")
    assert reserved(events) == 128
    assert reserved(events + made(4, 32, "large")) == 256


def test_devlog_large_then_small_does_not() -> None:
    events = made(4, 32, "large") + freed(4, "large")
    assert reserved(events) == 128
    assert reserved(events + made(8, 16, "small")) == 128


def test_devlog_a_segment_splits_and_merges_again() -> None:
    allocator = Allocator()
    allocator.free(allocator.allocate(32 * MIB))
    first, second = allocator.allocate(16 * MIB), allocator.allocate(16 * MIB)
    assert shape(allocator) == [["16 live", "16 live"]]
    allocator.free(first)
    assert shape(allocator) == [["16 free", "16 live"]]
    allocator.free(second)
    assert shape(allocator) == [["32 free"]]


def test_devlog_expandable_pages() -> None:
    allocator = Allocator(Settings(expandable_segments=True))
    blocks, mapped = [], []
    for _ in range(8):
        blocks.append(allocator.allocate(16 * MIB))
        mapped.append(allocator.reserved // MIB)
    assert mapped == [20, 40, 60, 80, 80, 100, 120, 140]
    for block in blocks:
        allocator.free(block)
    assert shape(allocator) == [["140 free"]]
    for _ in range(4):
        allocator.allocate(32 * MIB)
    assert allocator.reserved == 140 * MIB


def test_devlog_live_blocks_fragment_an_expandable_segment_too() -> None:
    allocator = Allocator(Settings(expandable_segments=True))
    blocks = [allocator.allocate(16 * MIB) for _ in range(4)]
    assert allocator.reserved == 80 * MIB
    allocator.free(blocks[0])
    allocator.free(blocks[2])
    big = allocator.allocate(32 * MIB)  # 16 MiB at the end are free: one more page completes them
    assert allocator.reserved == 100 * MIB
    for block in (big, blocks[1], blocks[3]):
        allocator.free(block)
    assert shape(allocator) == [["100 free"]]
    allocator.allocate(32 * MIB)
    assert allocator.reserved == 100 * MIB


@pytest.mark.parametrize("expandable", [True, False])
def test_devlog_smaller_tensors_can_cost_more(expandable: bool) -> None:
    first = [*made(1, 2, "a"), *freed(1, "a")]
    assert reserved(first + made(1, 0.5, "b"), expandable_segments=expandable) == 22
    assert reserved(first + made(1, 2, "b"), expandable_segments=expandable) == 20


# Rounding, pools, splitting


def test_a_large_remainder_of_up_to_one_mebibyte_counts_as_allocated() -> None:
    for extra, allocated in ((MIB, 13 * MIB), (MIB + 512, 12 * MIB)):
        allocator = Allocator()
        hold = allocator.allocate(30 * MIB)
        rest = allocator.allocate(30 * MIB - 12 * MIB - extra)
        allocator.free(hold)
        allocator.allocate(30 * MIB - 12 * MIB - extra)
        before = allocator.allocated
        allocator.allocate(12 * MIB)
        assert allocator.allocated - before == allocated, extra
        assert allocator.requested < allocator.allocated or extra > MIB
        allocator.free(rest)


def test_a_small_remainder_of_512_bytes_is_split_off() -> None:
    allocator = Allocator()
    allocator.allocate(MIB)
    allocator.allocate(MIB - 512)
    assert allocator.allocated == 2 * MIB - 512
    assert allocator.inactive_split == 512
    allocator.allocate(1)
    assert (allocator.reserved, allocator.inactive_split) == (2 * MIB, 0)


def test_expandable_large_blocks_split_to_the_byte() -> None:
    allocator = Allocator(Settings(expandable_segments=True))
    allocator.allocate(20 * MIB - 512)
    assert allocator.allocated == 20 * MIB - 512
    assert allocator.inactive_split == 0, "PyTorch does not keep this counter for expandable segments"


def test_the_pools_part_at_one_mebibyte_after_rounding() -> None:
    for size, mebibytes in (
        (MIB, 2),
        (MIB + 1, 20),
        (MIB - 511, 2),
        (10 * MIB - 512, 20),
        (10 * MIB - 511, 10),
    ):
        allocator = Allocator()
        allocator.allocate(size)
        assert allocator.reserved == mebibytes * MIB, size


def test_best_fit_takes_the_smallest_then_the_lowest() -> None:
    allocator = Allocator()
    blocks = [allocator.allocate(size * MIB) for size in (40, 24, 24, 32)]
    for block in reversed(blocks):
        allocator.free(block)
    assert allocator.allocate(23 * MIB).address == blocks[1].address
    assert allocator.allocate(25 * MIB).address == blocks[3].address


def test_streams_do_not_share_free_blocks() -> None:
    events = [("a", 30 * MIB), ("a", 0), ("b", 30 * MIB), ("b", 0)]
    assert replay(events, streams=[0, 0, 0, 0]).reserved.peak == 30 * MIB
    assert replay(events, streams=[0, 0, 7, 7]).reserved.peak == 60 * MIB
    assert replay([("a", 1), ("b", 1)], streams=[0, 1]).reserved == Level(4 * MIB, 4 * MIB)


def test_a_block_in_use_on_another_stream_stays_active() -> None:
    allocator = Allocator()
    block = allocator.allocate(30 * MIB)
    allocator.record_stream(block, 0)
    allocator.record_stream(block, 1)
    allocator.free(block)
    assert (allocator.allocated, allocator.active, allocator.requested) == (0, 30 * MIB, 30 * MIB)
    allocator.allocate(30 * MIB)
    assert allocator.reserved == allocator.active_peak == 60 * MIB
    assert allocator.allocated_peak == 30 * MIB
    assert shape(allocator) == [["30 waiting"], ["30 live"]]
    allocator.synchronize()
    assert (allocator.active, allocator.reserved) == (30 * MIB, 60 * MIB)
    allocator.allocate(30 * MIB)
    assert allocator.reserved == 60 * MIB


def test_recording_a_blocks_own_stream_changes_nothing() -> None:
    allocator = Allocator()
    block = allocator.allocate(1)
    allocator.record_stream(block, 0)
    allocator.free(block)
    assert allocator.active == 0


def test_peaks_start_again() -> None:
    allocator = Allocator(Settings(max_split_size=20 * MIB))
    hold, drop = allocator.allocate(3 * MIB), allocator.allocate(4 * MIB)
    for block in (allocator.allocate(30 * MIB), drop):
        allocator.free(block)
    allocator.empty_cache()
    allocator.reset_peaks()
    now = {
        "requested": 3 * MIB,
        "allocated": 3 * MIB,
        "active": 3 * MIB,
        "reserved": 20 * MIB,
        "inactive_split": 17 * MIB,
        "segments": 1,
    }
    for name, value in now.items():
        assert (getattr(allocator, name), getattr(allocator, f"{name}_peak")) == (value, value), name
    allocator.free(hold)


def test_inactive_split_counts_free_pieces_of_segments_in_use() -> None:
    allocator = Allocator()
    whole = [allocator.allocate(2 * MIB) for _ in range(10)]
    assert (allocator.reserved, allocator.inactive_split) == (20 * MIB, 0)
    allocator.free(whole[3])
    allocator.free(whole[5])
    assert allocator.inactive_split == 4 * MIB
    allocator.free(whole[4])
    assert allocator.inactive_split == 6 * MIB
    for index in (0, 1, 2, 6, 7, 8, 9):
        allocator.free(whole[index])
    assert (allocator.inactive_split, allocator.inactive_split_peak) == (0, 18 * MIB)
