"""A CUDA device that exists only for bookkeeping.

Under ``FakeTensorMode`` a tensor on ``cuda`` has a shape, a dtype and a storage but no contents. A CUDA build of torch
can do this on a machine without a GPU; a CPU build refuses at the first device guard and in the autograd engine. This
module puts torch's own no-op guard in place of the missing one and lets the hooks object say that CUDA was built. It
touches private memory layout (Itanium C++ ABI, torch 2.13), so use it in a process of its own and see `self_test`.

C++ calls what is put there until the process has ended, after Python's own end: it is machine code and tables that
nobody frees, not objects of Python's.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

_CUDA = 1  # c10::DeviceType::CUDA
_SLOTS = 96  # more virtual functions than any of the two interfaces has; reading past the end stays in the same section
_IS_BUILT, _HAS_PRIMARY_CONTEXT = 2, 4  # ATen/detail/AcceleratorHooksInterface.h, after two destructor slots
_TESTED = ("2.13",)
_NO, _YES = bytes.fromhex("31c0c3"), bytes.fromhex("b801000000c3")  # return 0; return 1
_installed = False


class FakeGPUError(RuntimeError):
    """The fake CUDA device can't be set up in this process; the message says why."""


@dataclass(frozen=True)
class FakeDevice:
    """Where fake tensors live: `device` is ``cuda`` or, as the fall-back, ``cpu``; `lost` says what that costs."""

    device: str
    way: str
    lost: str = ""


def set_up(fallback: bool = True) -> FakeDevice:
    """Make fake CUDA tensors usable in this process and return where they live.

    Raises `FakeGPUError` if no way works and `fallback` is false; otherwise falls back to fake CPU tensors.
    """
    if torch.cuda.is_available():
        return FakeDevice("cuda", "a real GPU is present; its tensors are fake")
    try:
        if torch.version.cuda is None:
            _install()
        self_test()
    except FakeGPUError as error:
        if not fallback:
            raise
        return FakeDevice(
            "cpu",
            f"fake CPU tensors ({error})",
            "autocast follows the CPU's lists and dropout saves the CPU's mask: trust only settings without both",
        )
    return FakeDevice("cuda", "no-op device guard on a CPU build" if torch.version.cuda is None else "CUDA build")


class _Mode(FakeTensorMode):  # type: ignore[no-untyped-call]
    @property
    def avoid_device_init(self) -> bool:
        return True


def fake_mode() -> FakeTensorMode:
    """Return the mode in which tensors are fake and may meet real ones.

    ``torch.tensor`` makes its values on the CPU in it, as where no GPU is, though code may have been told of one.
    """
    return _Mode(allow_non_fake_inputs=True)


def self_test() -> None:
    """Run one tiny fake backward on ``cuda``; raise `FakeGPUError` if anything in it fails."""
    try:
        # In this thread: the engine's own would still hold the mode while the interpreter ends.
        with FakeTensorMode(), torch.autograd.set_multithreading_enabled(False):
            weight = torch.empty(4, 4, device="cuda", requires_grad=True)
            torch.autograd.backward((torch.empty(2, 4, device="cuda") @ weight).sum())
            if weight.grad is None or weight.grad.device.type != "cuda":
                raise FakeGPUError("the backward made no gradient on the fake device")
    except RuntimeError as error:
        if isinstance(error, FakeGPUError):
            raise
        # The engine makes its device queues at the first backward of a process, for the devices it sees then.
        early = "; a backward has already run in this process" if "device_ready_queues_" in str(error) else ""
        raise FakeGPUError(f"the self-test failed: {str(error).splitlines()[0]}{early}") from error


def _install() -> None:
    global _installed
    if _installed:
        return
    if not torch.__version__.startswith(_TESTED):
        raise FakeGPUError(f"torch {torch.__version__} is not among the tested versions {', '.join(_TESTED)}")
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise FakeGPUError(f"{sys.platform} on {platform.machine()} is untested")
    lib = Path(torch.__file__).parent / "lib"
    no, yes = _functions()
    _install_guard(ctypes.CDLL(str(lib / "libc10.so")), no)
    _install_hooks(ctypes.CDLL(str(lib / "libtorch_cpu.so")), no, yes)
    _installed = True


def _memory() -> int:
    """Return the address of a page that stays until the process has ended."""
    libc = ctypes.CDLL(None)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    page = libc.mmap(None, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
    if page in (None, ctypes.c_void_p(-1).value):
        raise FakeGPUError("the system gives no page of memory")
    return int(page)


def _functions() -> tuple[int, int]:
    """Return the addresses of two functions: one returns 0, the other 1, whatever they are given."""
    page = _memory()
    ctypes.memmove(page, _NO + _YES, len(_NO + _YES))
    if ctypes.CDLL(None).mprotect(ctypes.c_void_p(page), mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_EXEC):
        raise FakeGPUError("the system lets no page of memory be run")
    return page, page + len(_NO)


def _install_guard(c10: ctypes.CDLL, no: int) -> None:
    # ensureCUDADeviceGuardSet() replaces a guard that counts no devices by NoOpDeviceGuardImpl<CUDA>
    # (c10/core/impl/DeviceGuardImplInterface.h), so the stub only ever answers deviceCount().
    table = (ctypes.c_void_p * _SLOTS).from_address(_memory())
    table[:] = [no] * _SLOTS
    stub = ctypes.c_void_p.from_address(ctypes.addressof(table) + ctypes.sizeof(table))
    stub.value = ctypes.addressof(table)
    registry = (ctypes.c_void_p * 32).in_dll(c10, "_ZN3c104impl26device_guard_impl_registryE")
    if not registry[_CUDA]:
        registry[_CUDA] = ctypes.addressof(stub)
    torch._C._ensureCUDADeviceGuardSet()
    if registry[_CUDA] == ctypes.addressof(stub):
        registry[_CUDA] = None
        raise FakeGPUError("torch did not install its no-op device guard")


def _install_hooks(torch_cpu: ctypes.CDLL, no: int, yes: int) -> None:
    # The autograd engine asks the hooks whether an accelerator was built before it starts a backward.
    get_hooks = torch_cpu._ZN2at6detail12getCUDAHooksEv
    get_hooks.restype = ctypes.c_void_p
    hooks = ctypes.c_void_p.from_address(get_hooks())
    if hooks.value is None:
        raise FakeGPUError("torch has no CUDA hooks object")
    header = 2  # offset to top, type information
    word = ctypes.sizeof(ctypes.c_void_p)
    size = header + _SLOTS
    table = (ctypes.c_void_p * size).from_address(_memory())
    ctypes.memmove(table, hooks.value - header * word, size * word)
    table[header + _IS_BUILT], table[header + _HAS_PRIMARY_CONTEXT] = yes, no
    hooks.value = ctypes.addressof(table) + header * word
