"""Memory that no tensor owns: cuBLAS workspaces inside PyTorch's allocator, the CUDA context outside of it."""

from __future__ import annotations

from collections.abc import Mapping

from peakmem.immutable import immutable
from peakmem.tables.gpus import GPU

HANDLES = 2
"""cuBLAS handles of a training process: the main thread runs the forward, the device's thread the backward. Each
further stream that multiplies matrices adds one."""

SMALL, LARGE = 2 * 4096 * 1024 + 8 * 16 * 1024, 32 * 2**20  # :4096:2:16:8, and Hopper's default
ROCM: Mapping[str, int] = {"gfx94": 128 * 2**20, "gfx95": 128 * 2**20, "gfx": 32 * 2**20}


@immutable
class Workspace:
    """Default cuBLAS workspace of one handle: `large` on the listed major capabilities, else `small`; in bytes."""

    since: tuple[int, int]  # torch version
    large_on: frozenset[int]
    held: bool  # kept by the process; False: each call allocates and frees it
    source: str


_FILE = "aten/src/ATen/cuda/CublasHandlePool.cpp"
WORKSPACES: tuple[Workspace, ...] = (
    Workspace((2, 0), frozenset({9}), True, f"{_FILE}, 2.0 to 2.11: 32 MiB on 9.0 alone"),
    Workspace((2, 12), frozenset({9, 10, 12}), True, f"{_FILE}, pytorch PR 175344"),
    Workspace((2, 14), frozenset({9, 10, 11, 12}), True, f"{_FILE}, pytorch PR 189312"),
    Workspace((2, 15), frozenset({9, 10, 11, 12}), False, f"{_FILE}, pytorch PR 194311: "
              "TORCH_CUBLAS_WORKSPACE_CACHE is off"),
)


def cublas_workspace(capability: str, torch: str = "2.13") -> tuple[int, str]:
    """Bytes of one held workspace on a GPU of a capability ("9.0", "gfx942"), and the source; 0: nothing is held."""
    for start, size in ROCM.items():
        if capability.startswith(start):
            return size, f"{_FILE}, ROCm"
    row = [w for w in WORKSPACES if w.since <= version(torch)][-1]
    head = capability.split(".")[0]
    major = int(head) if head.isdigit() else 8
    if not row.held:
        return 0, row.source
    return (LARGE if major in row.large_on else SMALL), row.source


@immutable
class Context:
    """What a process holds beside PyTorch's allocator: context and loaded kernels, in MiB, without NCCL."""

    name: str
    low: int
    high: int
    source: str


_READ = "readings of idle and of training processes in public issues and OOM messages"
CONTEXTS: Mapping[str, Context] = {row.name: row for row in (
    Context("eager", 700, 1850, "torch before 1.13 loads every kernel: 721 on GTX 1080 and 1823 on A100 with 1.8 and "
            "1.10 (pytorch issue 55277, stas00/ml-engineering training/performance)"),
    Context("small", 100, 800, f"{_READ}: 102 to 222 idle and 140 to 215 in training on T4, L4, A10 and 16 GB cards; "
            "up to 0.6 GiB of kernels"),
    Context("large", 200, 1100, f"{_READ}: 256 to 426 idle on RTX 3090, 4090 and 6000 Ada, 379 and 499 in training on "
            "4090 and 5090; up to 0.7 GiB of kernels"),
    Context("data centre", 400, 1250, f"{_READ}: 414 to 612 idle on A100, H100, H200, 670 in training on H200; up to "
            "0.7 GiB of kernels"),
    Context("data centre Blackwell", 600, 1400, f"{_READ}: 618 on B300, 712 on B200; up to 0.7 GiB of kernels"),
    Context("any", 100, 1400, f"{_READ}: from the smallest to the largest GPU"),
)}

_SMALL_NAMES = ("T4", "L4", "A10", "A10G", "A16", "A30", "A4000", "4060", "4070", "3060", "3070", "3080", "5060",
                "5070", "V100", "P100", "1080", "2080")


def context(gpu: GPU | None = None, torch: str = "2.13") -> Context:
    """The range of a training process on one GPU. Kernels are loaded when first used, since torch 1.13."""
    if version(torch) < (1, 13):
        return CONTEXTS["eager"]
    if gpu is None or not gpu.capability or gpu.major is None:
        return CONTEXTS["any"]
    if gpu.major == 10:
        return CONTEXTS["data centre Blackwell"]
    if gpu.capability in ("8.0", "9.0") and gpu.name != "A30":
        return CONTEXTS["data centre"]
    return CONTEXTS["small" if set(gpu.name.split()) & set(_SMALL_NAMES) else "large"]


def version(text: str) -> tuple[int, int]:
    """Major and minor of "2.13.0+cu128"."""
    parts = text.split("+")[0].split(".")
    return int(parts[0]), int(parts[1])
