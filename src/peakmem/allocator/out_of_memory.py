"""What PyTorch says when the GPU is full."""

from __future__ import annotations

from dataclasses import dataclass

from peakmem.allocator.settings import GIB, KIB, MIB

HINT = (
    " If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
    " to avoid fragmentation.  See documentation for Memory Management "
    " (https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
)


@dataclass(eq=False)
class OutOfMemory(Exception):
    """A request that the GPU cannot hold, with all caches released. Everything is in bytes.

    requested: what the program asked for; tried: the segment that had to be got for it (PyTorch's "Tried to
    allocate"); free and capacity: as cudaMemGetInfo tells them; allowed: None without a memory fraction.
    str() is the message of torch 2.13.0, for a process that sees itself on the GPU (outside a container).
    """

    requested: int
    tried: int
    capacity: int
    free: int
    outside: int
    allowed: int | None
    allocated: int
    reserved: int
    device: int = 0

    def __str__(self) -> str:
        allowed = "" if self.allowed is None else f"{human(self.allowed)} allowed; "
        return (
            f"CUDA out of memory. Tried to allocate {human(self.tried)}. GPU {self.device} has a total capacity"
            f" of {human(self.capacity)} of which {human(self.free)} is free. Including non-PyTorch memory, this"
            f" process has {human(self.reserved + self.outside)} memory in use. {allowed}Of the allocated memory"
            f" {human(self.allocated)} is allocated by PyTorch, and {human(self.reserved - self.allocated)} is"
            f" reserved by PyTorch but unallocated.{HINT}"
        )


def human(size: int) -> str:
    """Bytes as the allocator's messages print them: two decimals, and 1024 bytes are still bytes."""
    if size <= KIB:
        return f"{size} bytes"
    for unit, name in ((KIB, "KiB"), (MIB, "MiB")):
        if size <= unit * 1024:
            return f"{size / unit:.2f} {name}"
    return f"{size / GIB:.2f} GiB"
