"""Whole event lists, their pictures, and mistakes in them."""

from __future__ import annotations

import pytest
from allocator_shapes import MIB, freed, made

from peakmem.allocator import Allocator, Level, Settings, replay
from peakmem.allocator.blocks import Block
from peakmem.errors import Impossible


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
