"""What can be set about the caching allocator, and the size rules that follow from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from peakmem.errors import Impossible, UnknownName, printable
from peakmem.immutable import immutable, replace

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

MIN_BLOCK: Final = 512
"""Every size is rounded up to a multiple of this."""
SMALL_SIZE: Final = MIB
"""The largest request that the small pool serves."""
SMALL_SEGMENT: Final = 2 * MIB
MIN_LARGE: Final = 10 * MIB
"""Requests from here on get a segment of their own size."""
ROUND_LARGE: Final = 2 * MIB
UNLIMITED: Final = 1 << 62

Divisions = int | tuple[tuple[int | None, int], ...]
"""One number for all sizes, or pairs (interval in MiB, divisions) with None for "all larger ones"."""


@immutable
class Settings:
    """The allocator's options, named as in PYTORCH_CUDA_ALLOC_CONF but in bytes, and the GPU it works on.

    capacity: bytes of the GPU as PyTorch reports them, or None for as much as is asked for.
    outside: bytes of the GPU that are in use but not by this allocator (context, other programs).
    memory_fraction: `set_per_process_memory_fraction`; 1 sets no limit.
    roundup_power2_divisions: see `Divisions`; 0 and 1 round to 512 bytes only.
    max_split_size: None lets every block be split; max_non_split_rounding: None is large_segment_size.

    Raises Impossible for what PyTorch itself would refuse. Defaults and limits are those of torch 2.13
    (c10/core/AllocatorConfig.h and .cpp, c10/cuda/CUDAAllocatorConfig.h).
    """

    expandable_segments: bool = False
    max_split_size: int | None = None
    roundup_power2_divisions: Divisions = 0
    garbage_collection_threshold: float = 0.0
    large_segment_size: int = 20 * MIB
    max_non_split_rounding: int | None = None
    memory_fraction: float = 1.0
    capacity: int | None = None
    outside: int = 0
    device: int = 0

    def __post_init__(self) -> None:
        if self.large_segment_size <= MIN_LARGE:
            raise Impossible(f"large_segment_size must be over 10 MiB, got {self.large_segment_size} bytes")
        for name in ("max_split_size", "max_non_split_rounding"):
            given = getattr(self, name)
            if given is not None and given < self.large_segment_size:
                raise Impossible(
                    f"{name} must be at least large_segment_size, {self.large_segment_size} bytes, got {given}"
                )
        if not 0 <= self.garbage_collection_threshold < 1:
            raise Impossible(
                f"garbage_collection_threshold must be over 0 (0 = off) and below 1, "
                f"got {self.garbage_collection_threshold}"
            )
        if not 0 <= self.memory_fraction <= 1:
            raise Impossible(f"memory_fraction must be from 0 to 1, got {self.memory_fraction}")
        if self.capacity is None and self.memory_fraction < 1:
            raise Impossible("memory_fraction is a part of the capacity: give capacity too")
        if self.capacity is not None and not 0 <= self.outside <= self.capacity:
            raise Impossible(f"outside must be from 0 to the capacity, {self.capacity}, got {self.outside}")
        _check_divisions(self.roundup_power2_divisions)

    @property
    def limit(self) -> int | None:
        """Bytes that this process may reserve by its memory fraction; None where none was set."""
        if self.capacity is None or self.memory_fraction >= 1:
            return None
        return int(self.memory_fraction * self.capacity)

    @property
    def collects(self) -> bool:
        """Whether garbage collection is on: PyTorch heeds the threshold only under a memory fraction."""
        return self.garbage_collection_threshold > 0 and self.limit is not None

    def divisions(self) -> tuple[int, ...] | None:
        """Divisions of the sixteen intervals 1 MiB, 2 MiB … 32 GiB and over; None when nothing is rounded."""
        given = self.roundup_power2_divisions
        if isinstance(given, int):
            table = [given] * 16
        else:
            table = [0] * 16
            last = 0
            for position, (interval, count) in enumerate(given):
                if interval is None:
                    table[last + 1 :] = [count] * (15 - last)
                    continue
                last = min(interval.bit_length() - 1, 15)
                if position == 0:
                    table[:last] = [count] * last
                table[last] = count
        return tuple(table) if any(count > 1 for count in table) else None

    def segment_size(self, size: int) -> int:
        """Bytes that cudaMalloc is asked for when no free block can hold `size` (already rounded) bytes."""
        if size <= SMALL_SIZE:
            return SMALL_SEGMENT
        if size < MIN_LARGE:
            return self.large_segment_size
        return -(-size // ROUND_LARGE) * ROUND_LARGE

    def page_size(self, small: bool) -> int:
        """Bytes that an expandable segment of that pool grows by."""
        return SMALL_SEGMENT if small else self.large_segment_size

    @classmethod
    def parse(cls, text: str, base: Settings | None = None) -> Settings:
        """Settings from the text of PYTORCH_CUDA_ALLOC_CONF, over `base` for what it does not name.

        Options that move no bytes on the GPU (backend:native, the pinned_ ones) are passed over.
        Raises UnknownName or Impossible.
        """
        found: dict[str, object] = {}
        for option in _options(text):
            key, _, value = (part.strip() for part in option.partition(":"))
            if key in _IGNORED or key.startswith("pinned_"):
                continue
            if key not in _OPTIONS:
                raise UnknownName("allocator option", key, _OPTIONS)
            name, read = _OPTIONS[key]
            try:
                found[name] = read(value)
            except ValueError as error:
                raise Impossible(f"allocator option {key} cannot be {printable(value)}") from error
        return replace(base or cls(), **found)


def rounded(size: int, divisions: tuple[int, ...] | None = None) -> int:
    """The block size, in bytes, for a request of `size` bytes: a multiple of 512, or the next 1/n of its
    power-of-two interval where roundup_power2_divisions says so."""
    if divisions is not None and size > MIN_BLOCK:
        parts = divisions[min(max(size.bit_length() - 21, 0), 15)]
        if parts > 1 and size > MIN_BLOCK * parts:
            step = 1 << (size.bit_length() - parts.bit_length())
            return (size + step - 1) & -step
    return max((size + MIN_BLOCK - 1) & -MIN_BLOCK, MIN_BLOCK)


def _check_divisions(given: Divisions) -> None:
    pairs = ((None, given),) if isinstance(given, int) else given
    for interval, count in pairs:
        if count < 0 or count & (count - 1):
            raise Impossible(f"roundup_power2_divisions must be powers of two, got {count}")
        if interval is not None and (interval < 1 or interval & (interval - 1)):
            raise Impossible(f"intervals of roundup_power2_divisions must be powers of two, got {interval}")


def _options(text: str) -> list[str]:
    """Splits at the commas that stand outside square brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part for part in (p.strip() for p in parts) if part]


def _truth(text: str) -> bool:
    if text not in ("True", "False"):
        raise ValueError(text)
    return text == "True"


def _mebibytes(text: str) -> int:
    return int(text) * MIB


def _read_divisions(text: str) -> Divisions:
    if not text.startswith("["):
        return int(text)
    pairs = [pair.split(":") for pair in text.strip("[] ").split(",") if pair.strip()]
    return tuple((None if key.strip() == ">" else int(key), int(value)) for key, value in pairs)


_IGNORED: Final = frozenset({"backend", "release_lock_on_cudamalloc", "graph_capture_record_stream_reuse"})
_OPTIONS: Final[dict[str, tuple[str, Callable[[str], object]]]] = {
    "expandable_segments": ("expandable_segments", _truth),
    "max_split_size_mb": ("max_split_size", _mebibytes),
    "roundup_power2_divisions": ("roundup_power2_divisions", _read_divisions),
    "garbage_collection_threshold": ("garbage_collection_threshold", float),
    "large_segment_size_mb": ("large_segment_size", _mebibytes),
    "max_non_split_rounding_mb": ("max_non_split_rounding", _mebibytes),
    "per_process_memory_fraction": ("memory_fraction", float),
}
