"""Headers of .gguf files: metadata is skipped but for a few keys, tensors are counted.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md; block sizes: ggml/src/ggml-common.h.
"""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path
from typing import IO, Any

from peakmem.errors import Unreadable, printable
from peakmem.files import opened
from peakmem.readers.tensors import Found, Header, summed

VERSIONS = (2, 3)
MOST_ITEMS = 1_500_000  # strings of all arrays together; the largest vocabularies have half of that
MOST_TENSORS = 200_000
MOST_KEYS = 10_000
MOST_DEPTH = 4
MOST_NAME = 1024
WIDTH = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY, UINT32 = 8, 9, 4
TYPES = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24), 8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 36), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144), 13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74), 18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82), 23: ("IQ4_XS", 256, 136),
    24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17),
}
PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")


def read_gguf(path: str | Path) -> Found:
    """The tensors of a file, or of all parts of a split one. Errors: Unreadable."""
    found = PART.fullmatch(str(path))
    parts = [str(path)]
    if found:
        count = int(found[3])
        if not 0 < int(found[2]) <= count <= 1000:
            raise Unreadable(f"{printable(str(path))}: part {int(found[2])} of {count}; at most 1000 parts are read")
        parts = [f"{found[1]}-{i:05}-of-{found[3]}.gguf" for i in range(1, count + 1)]
        missing = [part for part in parts if not Path(part).is_file()]
        if missing:
            raise Unreadable(f"{printable(Path(path).name)} is one of {count} parts; not there: "
                             + printable(Path(missing[0]).name)
                             + (f" and {len(missing) - 1} more" if len(missing) > 1 else ""))
    headers: list[Header] = []
    architecture = ""
    for part in parts:
        with opened(part) as file:
            own, tensors = File(printable(part), os.fstat(file.fileno()).st_size, file).read()
        architecture = architecture or own
        headers += tensors
    return summed(printable(str(path)), headers, architecture)


class File:
    """One file while it is read. Every count is compared with the bytes that are left before it is used."""

    def __init__(self, name: str, size: int, file: IO[bytes]) -> None:
        self.name, self.size, self.file = name, size, file
        self.at = self.items = 0

    def fail(self, what: str) -> Unreadable:
        return Unreadable(f"{self.name}, byte {self.at}: {what}")

    def take(self, count: int, what: str) -> bytes:
        if count > self.size - self.at:
            raise self.fail(f"{what} takes {count} bytes; {self.size - self.at} are left")
        raw = self.file.read(count)
        if len(raw) != count:
            raise self.fail("the file ended while it was read")
        self.at += count
        return raw

    def skip(self, count: int, what: str) -> None:
        if count > self.size - self.at:
            raise self.fail(f"{what} takes {count} bytes; {self.size - self.at} are left")
        self.file.seek(count, 1)
        self.at += count

    def number(self, form: str, what: str) -> int:
        value: int = struct.unpack(form, self.take(struct.calcsize(form), what))[0]
        return value

    def text(self, what: str, most: int) -> str:
        length = self.number("<Q", what)
        if length > most:
            raise self.fail(f"{what} has {length} bytes; the limit is {most}")
        return self.take(length, what).decode("utf-8", "replace")

    def read(self) -> tuple[str, list[Header]]:
        """The architecture's name, and the tensors."""
        if self.size < 4 or self.take(4, "magic") != b"GGUF":
            raise Unreadable(f"{self.name} does not begin with GGUF")
        version = self.number("<I", "version")
        if version not in VERSIONS:
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in (*VERSIONS, 1)
            raise self.fail(f"GGUF version {version}{' (a big-endian file)' if swapped else ''}; known: 2 and 3, "
                            "little-endian")
        tensors, keys = self.number("<Q", "tensor count"), self.number("<Q", "key count")
        self.limit("tensors", tensors, 24, MOST_TENSORS)
        self.limit("keys", keys, 13, MOST_KEYS)
        known: dict[str, Any] = {}
        seen: set[str] = set()
        for _ in range(keys):
            key = self.text("a key", 65535)
            self.once(f"key {printable(key, 40)}", key, seen)
            kind = self.number("<I", f"the type of {printable(key, 40)}")
            value = self.value(kind, key, 0, key in ("general.architecture", "general.alignment"))
            if value is not None:
                known[key] = value
        alignment = known.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 8 <= alignment <= 2**20 or alignment & (alignment - 1):
            raise self.fail(f"general.alignment is {printable(alignment, 24)}: give a power of two from 8 to 2^20")
        rows = [self.tensor() for _ in range(tensors)]
        seen.clear()
        for header, _ in rows:
            self.once(f"tensor {printable(header.name, 60)}", header.name, seen)
        return str(known.get("general.architecture", ""))[:60], self.placed(rows, alignment)

    def once(self, what: str, name: str, seen: set[str]) -> None:
        """Refuse a name that stands in the file twice."""
        if name in seen:
            raise self.fail(f"{what} is there twice")
        seen.add(name)

    def limit(self, what: str, count: int, least: int, most: int) -> None:
        """Refuse a count that cannot be: each takes `least` bytes, and there is a limit."""
        if count > most or count * least > self.size - self.at:
            raise self.fail(f"{count} {what}; {self.size - self.at} bytes are left, and the limit is {most}")

    def value(self, kind: int, key: str, depth: int, wanted: bool) -> Any:
        """Skip a value, or return it where it is wanted."""
        name = printable(key, 40)
        if kind in WIDTH:
            if wanted and kind == UINT32:
                return self.number("<I", name)
            return self.skip(WIDTH[kind], name)
        if kind == STRING:
            if wanted:
                return self.text(name, MOST_NAME)
            return self.skip(self.number("<Q", name), name)
        if kind != ARRAY:
            raise self.fail(f"{name} has the unknown type {kind}")
        if depth >= MOST_DEPTH:
            raise self.fail(f"{name}: arrays in arrays, more than {MOST_DEPTH} deep")
        inner, count = self.number("<I", name), self.number("<Q", name)
        if inner in WIDTH:
            return self.skip(WIDTH[inner] * count, name)
        self.items += count
        if self.items > MOST_ITEMS or count * 8 > self.size - self.at:
            raise self.fail(f"{name} has {count} items; {self.size - self.at} bytes are left, and the limit is "
                            f"{MOST_ITEMS}")
        for _ in range(count):
            self.value(inner, key, depth + 1, False)
        return None

    def tensor(self) -> tuple[Header, int]:
        """One entry, and where its data lies."""
        name = self.text("a tensor's name", MOST_NAME)
        called = f"tensor {printable(name, 60)}"
        count = self.number("<I", called)
        if not 0 < count <= 4:
            raise self.fail(f"{called} has {count} dimensions; GGUF has 1 to 4")
        shape = [self.number("<Q", called) for _ in range(count)]
        kind, offset = self.number("<I", called), self.number("<Q", called)
        if kind not in TYPES:
            raise self.fail(f"{called} has the unknown type {kind}")
        dtype, block, width = TYPES[kind]
        elements = 1
        for size in shape:
            elements *= size
        if not 0 < elements < 2**63 or shape[0] % block:
            raise self.fail(f"{called} has shape {printable(shape, 90)} in {dtype} (blocks of {block})")
        return Header(name, dtype, elements, elements // block * width), offset

    def placed(self, rows: list[tuple[Header, int]], alignment: int) -> list[Header]:
        """The tensors, if each lies inside the file and none on another."""
        start = -(-self.at // alignment) * alignment
        reached = 0
        for header, offset in sorted(rows, key=lambda row: row[1]):
            called = f"tensor {printable(header.name, 60)}"
            if offset % alignment or offset < reached:
                raise self.fail(f"{called} at {offset} lies on another, or off the alignment of {alignment}")
            reached = offset + header.bytes
            if start + reached > self.size:
                raise self.fail(f"{called} ends at {start + reached}; the file has {self.size} bytes")
        return [header for header, _ in rows]
