"""Oversize blocks, and what happens when the GPU is full."""

from __future__ import annotations

import pytest
from allocator_shapes import MIB, shape

from peakmem.allocator import Allocator, OutOfMemory, Settings
from peakmem.allocator.out_of_memory import human

KIB = 1 << 10
GIB = 1 << 30


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
