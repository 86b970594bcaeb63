"""Single rules, each with the numbers that PyTorch or its authors published."""

from __future__ import annotations

import pytest

from peakmem.allocator import Allocator, Level, OutOfMemory, Settings, replay
from peakmem.allocator.blocks import Block
from peakmem.allocator.out_of_memory import human
from peakmem.errors import Impossible

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

Events = list[tuple[object, int]]


def made(count: int, mebibytes: float, name: str) -> Events:
    return [((name, i), int(mebibytes * MIB)) for i in range(count)]


def freed(count: int, name: str) -> Events:
    return [((name, i), 0) for i in range(count)]


def reserved(events: Events, **settings: object) -> int:
    """The peak, in MiB."""
    return replay(events, Settings(**settings)).reserved.peak // MIB  # type: ignore[arg-type]


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


# max_split_size


def test_oversize_blocks_are_neither_split_nor_lent_to_smaller_requests() -> None:
    for limit, expected in ((None, 100), (64, 130)):
        settings = Settings(max_split_size=limit and limit * MIB)
        allocator = Allocator(settings)
        allocator.free(allocator.allocate(100 * MIB))
        allocator.allocate(30 * MIB)
        assert allocator.reserved == expected * MIB


@pytest.mark.parametrize(("asked", "reused"), [(80.5, True), (80, False), (100, True)])
def test_an_oversize_request_may_waste_less_than_the_rounding(asked: float, reused: bool) -> None:
    allocator = Allocator(Settings(max_split_size=64 * MIB))
    allocator.free(allocator.allocate(100 * MIB))
    allocator.allocate(int(asked * MIB))
    assert (allocator.segments == 1) is reused
    assert allocator.allocated == (100 if reused else 80) * MIB


def test_a_request_of_exactly_max_split_size_is_oversize() -> None:
    allocator = Allocator(Settings(max_split_size=64 * MIB))
    allocator.free(allocator.allocate(70 * MIB))
    allocator.allocate(64 * MIB)
    assert (allocator.reserved, allocator.allocated) == (70 * MIB, 70 * MIB)


def test_max_non_split_rounding_follows_the_large_segment_size() -> None:
    for large, segments in ((20, 2), (40, 1)):
        allocator = Allocator(Settings(max_split_size=64 * MIB, large_segment_size=large * MIB))
        allocator.free(allocator.allocate(100 * MIB))
        allocator.allocate(70 * MIB)
        assert allocator.segments == segments


# When memory runs out


def test_empty_cache_gives_back_whole_segments_only() -> None:
    allocator = Allocator()
    keep, gone = allocator.allocate(2 * MIB), allocator.allocate(3 * MIB)
    other = allocator.allocate(40 * MIB)
    allocator.free(gone)
    allocator.free(other)
    allocator.empty_cache()
    assert (allocator.reserved, allocator.segments) == (20 * MIB, 1)
    allocator.free(keep)
    allocator.empty_cache()
    assert (allocator.reserved, allocator.segments, allocator.layout()) == (0, 0, ())


def test_empty_cache_unmaps_whole_pages_within_an_expandable_segment() -> None:
    allocator = Allocator(Settings(expandable_segments=True))
    first, gone, last = (allocator.allocate(size * MIB) for size in (10, 70, 10))
    allocator.free(gone)
    allocator.empty_cache()
    assert allocator.reserved == 40 * MIB
    assert shape(allocator) == [["10 live", "10 free"], ["10 live", "10 free"]]
    again = allocator.allocate(45 * MIB)  # the lowest hole that fits, not the end
    assert shape(allocator) == [["10 live", "45 live", "5 free"], ["10 live", "10 free"]]
    for block in (first, last, again):
        allocator.free(block)
    allocator.empty_cache()
    assert (allocator.reserved, allocator.layout()) == (0, ())


def test_a_full_gpu_is_retried_with_an_empty_cache() -> None:
    allocator = Allocator(Settings(capacity=100 * MIB))
    allocator.free(allocator.allocate(60 * MIB))
    allocator.allocate(70 * MIB)
    assert (allocator.retries, allocator.reserved, allocator.reserved_peak) == (1, 70 * MIB, 70 * MIB)


def test_waiting_blocks_are_waited_for_before_giving_up() -> None:
    allocator = Allocator(Settings(capacity=100 * MIB))
    block = allocator.allocate(60 * MIB)
    allocator.record_stream(block, 1)
    allocator.free(block)
    allocator.allocate(60 * MIB)
    assert allocator.retries == 1


def test_oversize_blocks_go_first_and_the_rest_stays() -> None:
    allocator = Allocator(Settings(capacity=200 * MIB, max_split_size=64 * MIB))
    blocks = [allocator.allocate(size * MIB) for size in (30, 70, 100)]
    for block in blocks:
        allocator.free(block)
    allocator.allocate(120 * MIB)
    assert (allocator.retries, allocator.reserved) == (0, 150 * MIB), "100, then 70 MiB were released: enough"


def test_oversize_blocks_that_do_not_suffice_mean_a_retry_with_all_released() -> None:
    allocator = Allocator(Settings(capacity=200 * MIB, max_split_size=64 * MIB))
    blocks = [allocator.allocate(size * MIB) for size in (60, 30, 70)]
    for block in blocks[1:]:
        allocator.free(block)
    allocator.allocate(101 * MIB)
    assert (allocator.retries, allocator.reserved) == (1, 162 * MIB)


def test_an_expandable_range_has_room_for_an_eighth_more_than_the_gpu() -> None:
    allocator = Allocator(Settings(capacity=200 * MIB, expandable_segments=True))
    blocks = [allocator.allocate(20 * MIB) for _ in range(10)]
    for block in blocks[::2]:
        allocator.free(block)
    allocator.allocate(40 * MIB)
    assert allocator.retries == 1
    assert shape(allocator) == [*[["20 live"]] * 4, ["20 live", "40 live"]], "behind the last, in the same range"


def test_an_empty_expandable_range_is_let_go() -> None:
    allocator = Allocator(Settings(expandable_segments=True))
    blocks = [allocator.allocate(20 * MIB) for _ in range(3)]
    for block in blocks:
        allocator.free(block)
        allocator.empty_cache()
    assert allocator.allocate(20 * MIB).address > blocks[2].address


def test_garbage_collection_frees_the_idle_and_needs_a_fraction() -> None:
    def run(**more: float) -> Allocator:
        allocator = Allocator(Settings(capacity=1000 * MIB, garbage_collection_threshold=0.2, **more))  # type: ignore[arg-type]
        allocator.free(allocator.allocate(50 * MIB))
        for _ in range(5):
            allocator.free(allocator.allocate(60 * MIB))
        allocator.allocate(100 * MIB)
        return allocator

    assert run().reserved == 210 * MIB
    assert run(memory_fraction=0.5).reserved == 160 * MIB


def test_the_message_is_pytorchs() -> None:
    allocator = Allocator(Settings(capacity=80 * GIB, outside=600 * MIB, memory_fraction=0.9))
    allocator.allocate(70 * GIB)
    with pytest.raises(OutOfMemory) as told:
        allocator.allocate(3 * GIB + 1)
    assert str(told.value) == (
        "CUDA out of memory. Tried to allocate 3.00 GiB. GPU 0 has a total capacity of 80.00 GiB of which 9.41 GiB"
        " is free. Including non-PyTorch memory, this process has 70.59 GiB memory in use. 72.00 GiB allowed; Of the"
        " allocated memory 70.00 GiB is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated. If"
        " reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to"
        " avoid fragmentation.  See documentation for Memory Management  (https://docs.pytorch.org/docs/stable/notes/"
        "cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
    )
    assert (told.value.requested, told.value.tried) == (3 * GIB + 1, 3 * GIB + 2 * MIB)
    assert allocator.retries == 1
    allocator.allocate(GIB)


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (KIB, "1024 bytes"), (KIB + 1, "1.00 KiB"), (MIB, "1024.00 KiB"), (GIB, "1024.00 MiB")],
)
def test_sizes_in_messages(size: int, text: str) -> None:
    assert human(size) == text


# Replays


def test_replay_stops_where_memory_ends() -> None:
    totals = replay([("a", 60 * MIB), ("b", 50 * MIB), ("b", 0)], Settings(capacity=100 * MIB))
    assert totals.events == 1
    assert totals.out_of_memory is not None
    assert totals.out_of_memory.requested == 50 * MIB
    assert totals.reserved == Level(60 * MIB, 60 * MIB)


def test_replay_tells_both_pictures_and_fragmentation() -> None:
    events = made(8, 16, "s") + freed(8, "s") + made(4, 32, "l") + freed(4, "l") + [("x", 1)]
    totals = replay(events[:-1], peak_layout=True)
    assert totals.fragmentation == 0.5
    assert totals.peak_layout is not None
    assert sorted((s.size // MIB, s.allocated // MIB) for s in totals.peak_layout) == [(16, 0)] * 8 + [(32, 32)] * 4
    assert [(s.allocated, len(s.pieces)) for s in totals.end_layout] == [(0, 1)] * 12
    assert replay(events).peak_layout is None
    assert replay([]).fragmentation == 0


def test_the_peak_picture_is_of_the_first_moment_at_the_peak() -> None:
    totals = replay([("a", 30 * MIB), ("a", 0), ("b", 20 * MIB), ("b", 0), ("c", 9)], peak_layout=True)
    assert totals.peak_layout is not None
    assert [segment.size // MIB for segment in totals.peak_layout] == [30, 2]
    totals = replay([("a", 30 * MIB), ("a", 0), ("b", 20 * MIB)], peak_layout=True)
    assert totals.peak_layout is not None
    assert [len(segment.pieces) for segment in totals.peak_layout] == [1]
    assert [len(segment.pieces) for segment in totals.end_layout] == [2]


def test_ids_may_be_used_again_but_not_twice_at_once() -> None:
    assert replay([(1, 5), (1, 0), (1, 7)]).requested == Level(7, 7)
    with pytest.raises(Impossible, match="event 1 allocates 1"):
        replay([(1, 5), (1, 7)])
    with pytest.raises(Impossible, match="event 0 frees 3"):
        replay([(3, -5)])
    with pytest.raises(Impossible, match="streams"):
        replay([(3, 5)], streams=[0, 1])


def test_mistakes_are_told() -> None:
    allocator = Allocator()
    block = allocator.allocate(1)
    allocator.free(block)
    with pytest.raises(Impossible, match="twice"):
        allocator.free(block)
    with pytest.raises(Impossible, match="at least 1 byte"):
        allocator.allocate(0)
    assert isinstance(block, Block)


def test_a_terabyte_model_without_a_capacity() -> None:
    for expandable in (False, True):
        totals = replay([(i, 3 << 40) for i in range(8)], Settings(expandable_segments=expandable))
        assert totals.reserved.peak >= 24 << 40


def shape(allocator: Allocator) -> list[list[str]]:
    names = {"active_allocated": "live", "active_awaiting_free": "waiting", "inactive": "free"}
    return [[f"{p.size // MIB} {names[p.state]}" for p in segment.pieces] for segment in allocator.layout()]
