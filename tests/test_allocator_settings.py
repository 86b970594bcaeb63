"""Options, their limits, and how sizes are rounded. Expected values are those of torch 2.13's allocator."""

from __future__ import annotations

import pytest

from peakmem.allocator import Allocator, Settings
from peakmem.allocator.settings import MIB, rounded
from peakmem.errors import Impossible, PeakmemError, UnknownName


@pytest.mark.parametrize(
    ("asked", "given"),
    [(1, 512), (512, 512), (513, 1024), (60_000_000, 60_000_256), (MIB, MIB), (MIB + 1, MIB + 512)],
)
def test_sizes_are_multiples_of_512(asked: int, given: int) -> None:
    assert rounded(asked) == given


@pytest.mark.parametrize(
    ("options", "asked", "given"),
    [
        (
            "4",
            1200 * 1024,
            1280 * 1024,
        ),  # the documentation's own: 1200 between 1024 and 2048 in 4 steps is 1280
        ("4", 2048, 2048),
        ("4", 2049, 2560),
        ("8", 4096, 4096),
        ("8", 4097, 4608),
        ("8", 60_000_000, 60 * MIB),
        ("1", 60_000_000, 60_000_256),
        ("[64:8,256:4,>:1]", 60_000_000, 60 * MIB),
        ("[64:8,256:4,>:1]", 100 * MIB, 104 * MIB),
        ("[64:8,256:4,>:1]", 200 * MIB, 200 * MIB),  # 128 MiB stands between two entries: no rounding
        ("[64:8,256:4,>:1]", 260 * MIB, 320 * MIB),
        ("[64:8,256:4,>:1]", 600 * MIB + 1, 600 * MIB + 512),
        ("[>:2]", 60_000_000, 64 * MIB),
        ("[>:2]", 3 * MIB // 2 + 1, 3 * MIB // 2 + 512),  # the first interval has no entry
    ],
)
def test_roundup_power2_divisions(options: str, asked: int, given: int) -> None:
    settings = Settings.parse(f"roundup_power2_divisions:{options}")
    assert rounded(asked, settings.divisions()) == given
    if given <= 1 << 30:
        allocator = Allocator(settings)
        allocator.allocate(asked)
        assert allocator.allocated >= given


@pytest.mark.parametrize(
    ("size", "segment"),
    [
        (512, 2),
        (MIB, 2),
        (MIB + 512, 20),
        (10 * MIB - 512, 20),
        (10 * MIB, 10),
        (10 * MIB + 512, 12),
        (16 * MIB, 16),
    ],
)
def test_segment_sizes(size: int, segment: int) -> None:
    assert Settings().segment_size(size) == segment * MIB


def test_parse_reads_what_pytorch_reads() -> None:
    settings = Settings.parse(
        "backend:native, expandable_segments:True,max_split_size_mb:64,garbage_collection_threshold:0.8,"
        "roundup_power2_divisions:[256:1,512:2,>:4],pinned_use_background_threads:True,large_segment_size_mb:30,"
        "max_non_split_rounding_mb:40",
        Settings(capacity=1 << 34),
    )
    assert settings == Settings(
        expandable_segments=True,
        max_split_size=64 * MIB,
        garbage_collection_threshold=0.8,
        roundup_power2_divisions=((256, 1), (512, 2), (None, 4)),
        large_segment_size=30 * MIB,
        max_non_split_rounding=40 * MIB,
        capacity=1 << 34,
    )
    assert Settings.parse("") == Settings()


@pytest.mark.parametrize(
    "options",
    [
        "max_split_size_mb:19",
        "max_split_size_mb:30,large_segment_size_mb:40",
        "max_non_split_rounding_mb:10",
        "large_segment_size_mb:10",
        "roundup_power2_divisions:3",
        "roundup_power2_divisions:[3:2]",
        "roundup_power2_divisions:[1:3]",
        "garbage_collection_threshold:1",
        "garbage_collection_threshold:-0.1",
        "per_process_memory_fraction:1.5",
        "max_split_size_mb:many",
        "expandable_segments:yes",
    ],
)
def test_what_pytorch_refuses_is_impossible_and_said_in_one_line(options: str) -> None:
    with pytest.raises(Impossible) as told:
        Settings.parse(options, Settings(capacity=1 << 34))
    assert "\n" not in str(told.value)


def test_an_unknown_option_names_the_near_one() -> None:
    with pytest.raises(UnknownName, match="max_split_size_mb"):
        Settings.parse("max_split_size:128")


def test_contradictions() -> None:
    with pytest.raises(Impossible, match="capacity"):
        Settings(memory_fraction=0.5)
    with pytest.raises(Impossible, match="outside"):
        Settings(capacity=100, outside=101)
    with pytest.raises(PeakmemError):
        Settings(large_segment_size=MIB)
