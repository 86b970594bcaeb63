"""The places where torch or transformers ask for a real GPU or notice a fake tensor, and the answers they get."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from unittest import mock

import torch
import torch.cuda.amp.common as cuda_amp
import torch.nn.functional as functional
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim.optimizer import _foreach_supported_types

from .attention import AttentionOnGPU
from .kernels import GPU

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
def gpu_answers(gpu: GPU, attention: str = "") -> Iterator[AttentionOnGPU]:
    """Let torch see `gpu` while the context lasts; yields the attention stand-in, which counts its kernels."""
    _register_cuda_kernels()
    sdpa = AttentionOnGPU(gpu, functional.scaled_dot_product_attention, attention)
    properties = SimpleNamespace(
        name=gpu.name,
        major=gpu.capability[0],
        minor=gpu.capability[1],
        multi_processor_count=108,
        total_memory=80 << 30,
        gcnArchName="",
    )
    with ExitStack() as stack:

        def patch(target: object, name: str, value: object) -> None:
            stack.enter_context(mock.patch.object(target, name, value))

        patch(functional, "scaled_dot_product_attention", sdpa)
        patch(torch.cuda, "get_device_capability", lambda device=None: gpu.capability)
        patch(torch.cuda, "get_device_properties", lambda device=None: properties)
        patch(torch.cuda, "is_bf16_supported", lambda including_emulation=True: gpu.capability >= (8, 0))
        patch(cuda_amp, "amp_definitely_not_available", lambda: False)
        # Optimizers take their foreach path by default only for the types in this list.
        if FakeTensor not in _foreach_supported_types:
            _foreach_supported_types.append(FakeTensor)
            stack.callback(_foreach_supported_types.remove, FakeTensor)
        transformers = sys.modules.get("transformers.utils.import_utils")
        if transformers is not None:
            # is_tracing() is true of fake tensors, and then masks are built that a real run skips.
            patch(transformers, "is_fake_tensor", lambda tensor: False)
        yield sdpa


def _register_cuda_kernels() -> None:
    if _libraries or torch.version.cuda is not None:
        return
    library = torch.library.Library("aten", "IMPL")
    for name in COMPOSITES_WITH_A_CUDA_KERNEL:
        library.impl(name, _never_run, "CUDA")
    _libraries.append(library)


def _never_run(*args: object, **kwargs: object) -> None:
    raise AssertionError("a fake tensor reached a CUDA kernel")
