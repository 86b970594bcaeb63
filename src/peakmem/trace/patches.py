"""The places where torch or transformers ask for a real GPU or notice a fake tensor, and the answers they get."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch._meta_registrations as meta
import torch.cuda.amp.common as cuda_amp
import torch.distributed.device_mesh
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import functional
from torch.nn.utils import clip_grad
from torch.optim.optimizer import _foreach_supported_types

from peakmem.tables.kernels import GPU

from .attention import AttentionOnGPU, chooses
from .process import TraceError
from .streams import ANSWERS

# Operators with a composite kernel beside a CUDA one (native_functions.yaml, torch 2.13). On a CPU build no CUDA kernel
# is registered, so a fake CUDA tensor takes the composite and allocates its temporaries. Any CUDA registration will do:
# fake tensors never run it.
COMPOSITES_WITH_A_CUDA_KERNEL = (
    "silu_backward",
    "mish_backward",
    "_fused_rms_norm",
    "native_channel_shuffle",
)

_libraries: list[torch.library.Library] = []


@contextmanager
def gpu_answers(gpu: GPU | None, attention: str = "") -> Iterator[AttentionOnGPU]:
    """Let torch see `gpu` while the context lasts; yields the attention stand-in, which counts its kernels.

    None: torch's own choices for the CPU stay as they are, for comparing with a real run there.
    """
    _register_cuda_kernels()
    seen = gpu or GPU()
    sdpa = AttentionOnGPU(seen, functional.scaled_dot_product_attention, attention)
    properties = SimpleNamespace(
        name=seen.name,
        major=seen.capability[0],
        minor=seen.capability[1],
        multi_processor_count=108,
        total_memory=80 << 30,
        gcnArchName="",
    )
    with ExitStack() as stack:

        def patch(target: object, name: str, value: object) -> None:
            stack.enter_context(mock.patch.object(target, name, value))

        if gpu is not None:
            patch(functional, "scaled_dot_product_attention", sdpa)
            patch(torch, "clear_autocast_cache", _both(torch.clear_autocast_cache, sdpa.leave_autocast))
            patch(functional, "linear", _linear(functional.linear, sdpa))
            patch(torch.cuda, "get_device_capability", lambda device=None: gpu.capability)
            patch(torch.cuda, "get_device_properties", lambda device=None: properties)
            patch(torch.cuda, "is_bf16_supported", lambda including_emulation=True: gpu.capability >= (8, 0))
            for name, answer in ANSWERS.items():
                patch(torch.cuda, name, answer)
            patch(torch.cuda, "_lazy_init", lambda: None)
            patch(torch.cuda, "synchronize", lambda device=None: None)
            patch(cuda_amp, "amp_definitely_not_available", lambda: False)
        patch(meta, "_meta_grouped_mm_common", _grouped_mm(meta._meta_grouped_mm_common))
        # Optimizers take their foreach path by default only for the types in this list.
        if FakeTensor not in _foreach_supported_types:
            _foreach_supported_types.append(FakeTensor)
            stack.callback(_foreach_supported_types.remove, FakeTensor)
        patch(clip_grad, "_has_foreach_support", _has_foreach_support)
        stack.enter_context(not_tracing())
        yield sdpa


def _both(first: Callable[[], None], second: Callable[[], None]) -> Callable[[], None]:
    def call() -> None:
        first()
        second()

    return call


def _linear(original: Any, answers: AttentionOnGPU) -> Any:
    """Return ``linear`` whose bias is added in place where the input is not contiguous.

    Real tensors have it so; a subclass gets a new one (aten/src/ATen/native/Linear.cpp).
    """

    def linear(x: Any, weight: Any, bias: Any = None) -> Any:
        if bias is None or not isinstance(x, FakeTensor) or x.dim() < 3 or x.is_contiguous():
            return original(x, weight, bias)
        answers.adds_in_place = not chooses()
        try:
            return original(x, weight, bias)
        finally:
            answers.adds_in_place = False

    return linear


@contextmanager
def not_tracing() -> Iterator[None]:
    """Let transformers, if it is loaded, take fake tensors for ordinary ones.

    Its is_tracing() is true of fake tensors, and then masks are built that a real run skips.
    """
    transformers = sys.modules.get("transformers.utils.import_utils")
    if transformers is None:
        yield
        return
    with mock.patch.object(transformers, "is_fake_tensor", lambda tensor: False):
        yield


@contextmanager
def one_gpu() -> Iterator[None]:
    """Let code that asks first find one GPU. Raises `TraceError` where it wants more."""
    found = {"is_available": True, "device_count": 1, "current_device": 0}

    def refused(*args: object, **kwargs: object) -> None:
        raise TraceError("torch.distributed: give --gpus N, and one rank of N is traced")

    with ExitStack() as stack:
        for name, answer in found.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, lambda answer=answer: answer))
        # torch._inductor, which packages load on the way, reads it where a GPU is found; a CPU build has none.
        stack.enter_context(mock.patch.object(torch._C, "_cuda_getCurrentRawStream", lambda device: 0, create=True))
        for module in (torch.distributed, torch.distributed.device_mesh):
            stack.enter_context(mock.patch.object(module, "init_process_group", refused))
        yield


def _has_foreach_support(tensors: Any, device: torch.device) -> bool:
    """Return whether clipping takes the foreach path, as torch.utils._foreach_utils does but for fake tensors, too."""
    known = (torch.Tensor, FakeTensor)
    return device.type in ("cuda", "cpu") and all(tensor is None or type(tensor) in known for tensor in tensors)


def _register_cuda_kernels() -> None:
    if _libraries or torch.version.cuda is not None:
        return
    library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    for name in COMPOSITES_WITH_A_CUDA_KERNEL:
        library.impl(name, _never_run, "CUDA")
    _libraries.append(library)


def _grouped_mm(original: Any) -> Any:
    """Return the shape rule of ``_grouped_mm`` with fp32 and fp16 admitted, as its kernel does (GroupedBlas.cpp)."""

    def shape(mat_a: torch.Tensor, mat_b: torch.Tensor, **options: Any) -> Any:
        if options["scale_a"] is None and mat_a.dtype == mat_b.dtype != torch.bfloat16:
            make: Any = meta._create_grouped_mm_output_tensor
            return make(mat_a, mat_b, options["offs"], options["out_dtype"])
        return original(mat_a, mat_b, **options)

    return shape


def _never_run(*args: object, **kwargs: object) -> None:
    raise AssertionError("a fake tensor reached a CUDA kernel")
