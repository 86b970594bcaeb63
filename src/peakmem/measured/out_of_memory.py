"""What PyTorch's out-of-memory message says, read from a log: torch 1.0 to 2.15, CUDA, HIP and XPU.

The texts are those of c10/cuda/CUDACachingAllocator.cpp; allocator/out_of_memory.py writes that of 2.13.
"""

from __future__ import annotations

import re
from typing import Any

from peakmem.errors import Unreadable
from peakmem.immutable import immutable

MOST = 2**20
"""Characters of a log that are read."""
UNITS = {"bytes": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_S = r"(\d{1,15}(?:\.\d{1,6})?) (bytes|KiB|MiB|GiB)"
_BEGIN = r"(CUDA|HIP|XPU) out of memory\. Tried to allocate "
_PROCESS = rf"Process \d{{1,10}} has {_S} memory in use\. ?"
NEW = re.compile(
    rf"{_BEGIN}{_S}\. GPU (\d{{1,4}}) has a total capaci?ty of {_S} of which {_S} is free\. "
    rf"(?P<before>(?:{_PROCESS})*)"
    rf"(?:Including non-PyTorch memory, this process has {_S} memory in use\. )?"
    rf"(?P<after>(?:{_PROCESS})*)"
    rf"(?:{_S} allowed; )?Of the allocated memory {_S} is allocated by PyTorch, "
    rf"(?:with {_S} allocated in private pools \(e\.g\., \w{{1,8}} Graphs\), )?and {_S} is reserved by PyTorch but "
    r"unallocated\.")
OLD = re.compile(
    rf"{_BEGIN}{_S} \(GPU (\d{{1,4}}); {_S} total capacity; {_S} already allocated; {_S} free; "
    rf"(?:{_S} allowed; )?{_S} (reserved in total by PyTorch|cached)")
EXACT = re.compile(r"memory allocation failed with OOM on device \d{1,4} while trying to allocate (\d{1,18}) bytes "
                   r"\(free: (\d{1,18}), total: (\d{1,18})\)")
FRAME = re.compile(r'File "([^"]{1,400})", line \d{1,9}, in (\w{1,100})')
OTHERS: tuple[tuple[str, str], ...] = (
    ("MPS backend out of memory", "the message of Apple's MPS: its memory is the machine's own, and not counted here"),
    ("preemptively rejected", "the message of a memory fraction (per_process_memory_fraction): it holds no totals"),
    ("more than 1EB", "a request of more than an exbibyte: a size in the program is wrong"),
    ("trying to allocate", "no message of PyTorch's"),
    ("CUBLAS_STATUS_ALLOC_FAILED", "cuBLAS's message: it holds no sizes"),
    ("CUDA error: out of memory", "CUDA's own message: it holds no sizes, and PyTorch's allocator was not asked"),
)


@immutable
class OutOfMemoryMessage:
    """The figures of one message, in bytes; None where it does not say.

    tried: what the allocator wanted from the device; capacity, free: of the device; allocated: in PyTorch's blocks,
    `pools` of it in private pools; reserved: taken by PyTorch's allocator; used: by this process in all; processes:
    what others hold, as far as they are named; allowed: by a memory fraction; backend: CUDA, HIP, XPU; advice: the
    setting of the allocator that the message proposes, "" where it proposes none; phase: forward, backward or
    optimizer by the traceback before it, "" without one; messages: how many such messages the log holds.
    """

    tried: int
    capacity: int
    free: int
    allocated: int
    reserved: int
    pools: int = 0
    used: int | None = None
    processes: tuple[int, ...] = ()
    allowed: int | None = None
    backend: str = "CUDA"
    device: int = 0
    advice: str = ""
    phase: str = ""
    messages: int = 1

    @property
    def unallocated(self) -> int:
        """Reserved in pieces that are too small or in the wrong place: whole ones were given back before."""
        return self.reserved - self.allocated

    @property
    def outside(self) -> int:
        """Used on the device and not by this process's PyTorch: contexts and other processes."""
        return max(0, self.capacity - self.free - self.reserved)

    @property
    def own(self) -> int | None:
        """Of that, this process's: its context."""
        return None if self.used is None else max(0, self.used - self.reserved)

    @property
    def foreign(self) -> int | None:
        """Of that, other processes'."""
        return None if self.used is None else max(0, self.capacity - self.free - self.used)


def read_message(text: str) -> OutOfMemoryMessage:
    """The first out-of-memory message of a log. Errors: Unreadable."""
    if len(text) > MOST:
        raise Unreadable(f"the log is longer than {MOST:,} characters: give the message and the lines before it")
    log = joined(text)
    found = sorted([*NEW.finditer(log), *OLD.finditer(log)], key=lambda one: one.start())
    if not found:
        begun = "out of memory. Tried to allocate" in log
        said = [words for part, words in OTHERS if part in log and not begun]
        raise Unreadable(f"{said[0]}; give PyTorch's line with \"Tried to allocate …\" and what follows" if said else
                         "the message is cut: give all of it, to \"reserved by PyTorch but unallocated\" (before torch "
                         "2.1: \"reserved in total by PyTorch\")" if begun else
                         "no out-of-memory message of PyTorch's: give the line with \"CUDA out of memory. Tried to "
                         "allocate …\"")
    first = found[0]
    numbers = newer(first) if first.re is NEW else older(first)
    if numbers["allocated"] > numbers["reserved"] + 2**20 or numbers["capacity"] == 0:
        raise Unreadable("the message contradicts itself: more is allocated than reserved, or the GPU has no memory")
    for exact in EXACT.finditer(log, 0, first.start()):
        tried, free, total = map(int, exact.groups())
        if abs(tried - numbers["tried"]) <= 2**24 and abs(total - numbers["capacity"]) <= 2**24:
            numbers |= {"tried": tried, "free": free, "capacity": total}
    hint = log[first.end():first.end() + 300]
    advice = next((name for name in ("expandable_segments", "max_split_size_mb") if name in hint), "")
    return OutOfMemoryMessage(**numbers, backend=first[1], advice=advice, phase=phase(log[:first.start()]),
                              messages=len(found))


def joined(text: str) -> str:
    """A log as one line: without what launchers write before each line, frames of boxes and doubled spaces."""
    lines = (re.sub(r"^\s*(?:\[?rank ?\d{1,6}\]?:?|\[default\d{1,6}\]:?)\s", "", line) for line in text.splitlines())
    return " ".join(" ".join(lines).translate(dict.fromkeys(map(ord, "│|╭╮╰╯─❱"), " ")).split())


def newer(found: re.Match[str]) -> dict[str, Any]:
    """The figures since torch 2.1."""
    texts = found.groups()
    tried, capacity, free = (size(*texts[at:at + 2]) for at in (1, 4, 6))
    # after `before`, with two groups of its own, and after `after`
    used, allowed, allocated, pools, unallocated = (size(*texts[at:at + 2]) for at in (11, 16, 18, 20, 22))
    assert allocated is not None and unallocated is not None
    reserved = allocated + unallocated
    named = tuple(size(*pair) or 0 for pair in re.findall(_PROCESS, found["before"] + found["after"]))
    # Within a container the process does not know itself: it is the one that holds what PyTorch has reserved.
    own = [one for one in named if one >= 0.99 * reserved] if used is None else []
    if own:
        used = min(own)
        named = tuple(one for i, one in enumerate(named) if i != named.index(used))
    return {"tried": tried, "capacity": capacity, "free": free, "used": used, "allowed": allowed,
            "allocated": allocated, "pools": pools or 0, "reserved": reserved, "processes": named,
            "device": int(texts[3])}


def older(found: re.Match[str]) -> dict[str, Any]:
    """The figures before torch 2.1. "cached", before 1.4, is what is not in use of it."""
    texts = found.groups()
    tried, capacity, allocated, free, allowed, last = (size(*texts[at:at + 2]) for at in (1, 4, 6, 8, 10, 12))
    assert allocated is not None and last is not None
    reserved = allocated + last if texts[14] == "cached" else last
    return {"tried": tried, "capacity": capacity, "free": free, "allowed": allowed, "allocated": allocated,
            "reserved": reserved, "device": int(texts[3])}


def size(number: str | None, unit: str | None) -> int | None:
    """`2.81`, `GiB` as bytes."""
    return None if number is None or unit is None else round(float(number) * UNITS[unit])


def phase(before: str) -> str:
    """Where in the step a traceback was: the last frame that says so."""
    found = ""
    for path, function in FRAME.findall(before[-100_000:]):
        path = path.replace("\\", "/")
        if "torch/autograd/" in path and "backward" in function:
            found = "backward"
        elif "torch/optim/" in path:
            found = "optimizer"
        elif not found and "torch/nn/modules/" in path:
            found = "forward"
    return found
