"""Headers of .safetensors files, single and sharded.

Format: 8 bytes, the header's length; the header, JSON; the data, without gaps and to the last byte
(https://github.com/huggingface/safetensors, README, "Format").
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from peakmem.errors import Unreadable, printable
from peakmem.files import opened
from peakmem.readers.json_file import MOST_BYTES, parse, read_json
from peakmem.readers.tensors import Found, Header, summed

BITS = {"F64": 64, "I64": 64, "U64": 64, "C64": 64, "F32": 32, "I32": 32, "U32": 32, "BF16": 16, "F16": 16,
        "I16": 16, "U16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I8": 8,
        "U8": 8, "BOOL": 8, "F6_E2M3": 6, "F6_E3M2": 6, "F4": 4}
MOST_SHARDS = 2000
MOST_DIMENSIONS = 64
INDEX = "model.safetensors.index.json"


def read_safetensors(path: str | Path) -> Found:
    """The tensors of one file; of a folder, those of all its shards. Errors: Unreadable."""
    if not os.path.isdir(path):
        return summed(printable(str(path)), headers_of(path))
    folder = Path(path)
    return summed(printable(str(path)), (header for shard in shards_of(folder) for header in headers_of(shard)))


def shards_of(folder: Path) -> list[Path]:
    """The files that belong together: those that the index names, else every .safetensors file of the folder."""
    index = folder / INDEX
    if index.is_file() and index.stat().st_size <= MOST_BYTES:
        names = shard_names(read_json(index), printable(str(index)))
        shards = [inside(folder, name, printable(str(index))) for name in names]
        missing = [shard.name for shard in shards if not shard.is_file()]
        if missing:
            more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
            raise Unreadable(f"{printable(str(index))} names files that are not there: "
                             f"{', '.join(printable(name, 60) for name in missing[:5])}{more}")
        return shards
    found = sorted(entry.name for entry in os.scandir(folder) if entry.name.endswith(".safetensors"))
    if len(found) > MOST_SHARDS:
        raise Unreadable(f"{printable(str(folder))} has {len(found)} .safetensors files; the limit is {MOST_SHARDS}")
    return [inside(folder, name, printable(str(folder))) for name in found]


def claimed_bytes(folder: str | Path) -> int | None:
    """What the index says that all tensors take, if it says something."""
    index = Path(folder) / INDEX
    if not index.is_file() or index.stat().st_size > MOST_BYTES:
        return None
    found = read_json(index)
    total = found["metadata"].get("total_size") if isinstance(found, dict) and isinstance(
        found.get("metadata"), dict) else None
    return total if is_whole(total) else None


def shard_names(index: Any, name: str) -> list[str]:
    """The different files in a weight_map."""
    mapping = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(mapping, dict) or not mapping:
        raise Unreadable(f"{name} has no weight_map that names files")
    names: set[str] = set()
    for tensor, shard in mapping.items():
        if not isinstance(shard, str):
            raise Unreadable(f"{name}: weight_map of {printable(tensor, 60)} is {printable(shard, 40)}, no file's name")
        names.add(shard)
        if len(names) > MOST_SHARDS:
            raise Unreadable(f"{name} names more than {MOST_SHARDS} files")
    return sorted(names)


def inside(folder: Path, shard: str, name: str) -> Path:
    """A shard's path, if it is a plain name and no link that leads away; the hub's own cache links to its blobs."""
    if os.path.basename(shard) != shard or shard in ("", ".", "..") or not shard.isprintable() or "\\" in shard:
        raise Unreadable(f"{name}: {printable(shard, 60)} is no file of this folder")
    try:
        real, home = (folder / shard).resolve(), folder.resolve()
    except (OSError, RuntimeError, ValueError):
        raise Unreadable(f"{name}: {printable(shard, 60)} cannot be resolved") from None
    if real.parent not in (home, home.parent.parent / "blobs"):
        raise Unreadable(f"{name}: {printable(shard, 60)} leads out of this folder")
    return folder / shard


def headers_of(path: str | Path) -> Iterator[Header]:
    """The tensors of one file, checked. Errors: Unreadable that names the tensor."""
    name = printable(str(path))
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size < 8:
            raise Unreadable(f"{name} has {size} bytes: too short for the 8 bytes of a header's length")
        length = int.from_bytes(file.read(8), "little")
        if length > size - 8:
            raise Unreadable(f"{name} says that its header has {length} bytes; the file has {size}")
        if length > MOST_BYTES:
            raise Unreadable(f"{name} has a header of {length} bytes; the limit is {MOST_BYTES}")
        raw = file.read(length)
    if len(raw) != length:
        raise Unreadable(f"{name} ended while it was read")
    yield from checked(parse(raw, f"the header of {name}"), name, size - 8 - length)


def checked(header: Any, name: str, data: int) -> Iterator[Header]:
    """Every entry, and that together they cover the data without gap and overlap."""
    if not isinstance(header, dict):
        raise Unreadable(f"{name}: its header is not an object with tensors")
    spans: list[tuple[int, int, str]] = []
    for tensor, entry in header.items():
        if tensor == "__metadata__":
            continue
        called = f"{name}: tensor {printable(tensor, 60)}"
        if not isinstance(entry, dict):
            raise Unreadable(f"{called} is no object with dtype, shape and data_offsets")
        dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
        if not isinstance(dtype, str) or dtype not in BITS:
            raise Unreadable(f"{called} has dtype {printable(dtype, 30)}; known: {', '.join(BITS)}")
        elements = product(shape, called)
        if not (isinstance(offsets, list) and len(offsets) == 2 and all(map(is_whole, offsets))):
            raise Unreadable(f"{called} has data_offsets {printable(offsets, 40)}, not two whole numbers")
        begin, end = offsets
        if not 0 <= begin <= end <= data:
            raise Unreadable(f"{called} lies from {printable(begin, 24)} to {printable(end, 24)} in {data} bytes")
        if elements * BITS[dtype] != 8 * (end - begin):
            raise Unreadable(f"{called} is {printable(shape, 40)} in {dtype}, which does not take {end - begin} bytes")
        spans.append((begin, end, tensor))
        yield Header(tensor, dtype, elements, end - begin)
    spans.sort()
    reached = 0
    for begin, end, tensor in spans:
        if begin != reached:
            what = "overlaps the one before" if begin < reached else f"leaves {begin - reached} bytes unused before it"
            raise Unreadable(f"{name}: tensor {printable(tensor, 60)} {what}")
        reached = end
    if reached != data:
        raise Unreadable(f"{name}: {data - reached} bytes at its end belong to no tensor")


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def product(shape: Any, called: str) -> int:
    """How many elements. Errors: Unreadable for what is no shape."""
    if not isinstance(shape, list) or not all(is_whole(size) and 0 <= size < 2**63 for size in shape):
        raise Unreadable(f"{called} has shape {printable(shape, 40)}: give whole numbers from 0 to 2^63")
    if len(shape) > MOST_DIMENSIONS:
        raise Unreadable(f"{called} has {len(shape)} dimensions; the limit is {MOST_DIMENSIONS}")
    elements = 1
    for size in shape:
        elements *= size
    return elements
