"""A CUDA device that exists only for bookkeeping.

Under ``FakeTensorMode`` a tensor on ``cuda`` has a shape, a dtype and a storage but no contents. A CUDA build of torch
can do this on a machine without a GPU; a CPU build refuses at the first device guard and in the autograd engine. This
module puts torch's own no-op guard in place of the missing one and lets the hooks object say that CUDA was built. It
touches private memory layout (Itanium C++ ABI, torch 2.13), so use it in a process of its own and see `self_test`.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

import torch

_CUDA = 1  # c10::DeviceType::CUDA
_SLOTS = 96  # more virtual functions than any of the two interfaces has; reading past the end stays in the same section
_IS_BUILT, _HAS_PRIMARY_CONTEXT = 2, 4  # ATen/detail/AcceleratorHooksInterface.h, after two destructor slots
_TESTED = ("2.13",)
_keep: list[object] = []  # C++ holds raw pointers to these


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


def self_test() -> None:
    """Run one tiny fake backward on ``cuda``; raise `FakeGPUError` if anything in it fails."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    try:
        with FakeTensorMode():
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
    if _keep:
        return
    if not torch.__version__.startswith(_TESTED):
        raise FakeGPUError(f"torch {torch.__version__} is not among the tested versions {', '.join(_TESTED)}")
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise FakeGPUError(f"{sys.platform} on {platform.machine()} is untested")
    lib = Path(torch.__file__).parent / "lib"
    _install_guard(ctypes.CDLL(str(lib / "libc10.so")))
    _install_hooks(ctypes.CDLL(str(lib / "libtorch_cpu.so")))


def _install_guard(c10: ctypes.CDLL) -> None:
    # ensureCUDADeviceGuardSet() replaces a guard that counts no devices by NoOpDeviceGuardImpl<CUDA>
    # (c10/core/impl/DeviceGuardImplInterface.h), so the stub only ever answers deviceCount().
    zero = ctypes.CFUNCTYPE(ctypes.c_size_t)(lambda: 0)
    table = (ctypes.c_void_p * _SLOTS)(*[ctypes.cast(zero, ctypes.c_void_p).value] * _SLOTS)
    stub = (ctypes.c_void_p * 4)(ctypes.addressof(table), 0, 0, 0)
    _keep.extend((zero, table, stub))
    registry = (ctypes.c_void_p * 32).in_dll(c10, "_ZN3c104impl26device_guard_impl_registryE")
    if not registry[_CUDA]:
        registry[_CUDA] = ctypes.addressof(stub)
    torch._C._ensureCUDADeviceGuardSet()
    if registry[_CUDA] == ctypes.addressof(stub):
        registry[_CUDA] = None
        raise FakeGPUError("torch did not install its no-op device guard")


def _install_hooks(torch_cpu: ctypes.CDLL) -> None:
    # The autograd engine asks the hooks whether an accelerator was built before it starts a backward.
    get_hooks = torch_cpu._ZN2at6detail12getCUDAHooksEv
    get_hooks.restype = ctypes.c_void_p
    hooks = ctypes.c_void_p.from_address(get_hooks())
    if hooks.value is None:
        raise FakeGPUError("torch has no CUDA hooks object")
    word = ctypes.sizeof(ctypes.c_void_p)
    header = 2  # offset to top, type information
    old = (ctypes.c_void_p * (_SLOTS + header)).from_address(hooks.value - header * word)
    table = (ctypes.c_void_p * (_SLOTS + header))(*old)
    yes = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p)(lambda _self: True)
    no = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_int8)(lambda _self, _index: False)
    table[header + _IS_BUILT] = ctypes.cast(yes, ctypes.c_void_p).value
    table[header + _HAS_PRIMARY_CONTEXT] = ctypes.cast(no, ctypes.c_void_p).value
    _keep.extend((table, yes, no))
    hooks.value = ctypes.addressof(table) + header * word
