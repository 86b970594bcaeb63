"""Which attention kernel PyTorch takes, as data.

``scaled_dot_product_attention`` asks the device at run time (aten/src/ATen/native/transformers/cuda/sdp_utils.cpp);
without a GPU it always answers ``math``. The rules below answer for a named GPU and torch version instead. A rule is
a reason to refuse a kernel; the first kernel in the order without a reason is taken.
"""

from __future__ import annotations

from collections.abc import Callable

from peakmem.immutable import immutable

HALVES = ("float16", "bfloat16")


@immutable
class GPU:
    """What kernel choice needs to know of a device: compute capability and cuDNN's version (0: none)."""

    name: str = "sm_80"
    capability: tuple[int, int] = (8, 0)
    cudnn: int = 0


@immutable
class Attention:
    """One call: dtype without ``torch.``, head sizes of query and value, queries and keys, and what is asked for.

    `grouped` is the caller's ``enable_gqa``; without it unequal head counts are broadcast, which no fused kernel does.
    """

    dtype: str
    head: int
    value_head: int
    queries: int
    keys: int
    masked: bool = False
    heads: int = 1
    key_heads: int = 1
    grouped: bool = False
    causal: bool = False
    dropout: float = 0.0
    training: bool = True
    mask_trained: bool = False


Rule = Callable[[Attention, GPU, tuple[int, int]], str]


def _no_mask(call: Attention, gpu: GPU, torch: tuple[int, int]) -> str:
    return "an attention mask" if call.masked else ""


def _sixteen_bits(call: Attention, gpu: GPU, torch: tuple[int, int]) -> str:
    return "" if call.dtype in HALVES else f"dtype {call.dtype}"


def _flash_head(call: Attention, gpu: GPU, torch: tuple[int, int]) -> str:
    if call.head != call.value_head:
        return "different head sizes of key and value"
    if call.head > 256:
        return f"head size {call.head} > 256"
    small = gpu.capability in ((8, 6), (8, 9), (12, 0), (12, 1))
    if small and call.training and 192 < call.head <= 224:
        return f"training with head size {call.head} on this GPU"
    if small and call.training and call.head > 224 and call.dropout > 0:
        return f"training with dropout and head size {call.head} on this GPU"
    return ""


def _square_if_causal(call: Attention, gpu: GPU, torch: tuple[int, int]) -> str:
    return "causal with unequal lengths" if call.causal and call.queries != call.keys else ""


def _ampere(call: Attention, gpu: GPU, torch: tuple[int, int]) -> str:
    return "" if gpu.capability >= (8, 0) else "a GPU before sm_80"


def _efficient_head(call: Attention, gpu: GPU, torch: tuple[int, int]) -> str:
    # minimum_gemm_alignment(): 16 bytes where tensor cores are used.
    half = call.dtype in HALVES
    tensor_cores = gpu.capability[0] >= 8 or (gpu.capability[0] == 7 and half)
    least = 16 // (2 if half else 4) if tensor_cores else (4 if gpu.capability[0] >= 8 else 1)
    if call.head % least or call.value_head % least:
        return f"head size not a multiple of {least}"
    return ""


def _flash_groups(call: Attention, gpu: GPU, torch: tuple[int, int]) -> str:
    if call.heads == call.key_heads:
        return ""
    return "" if call.grouped and call.heads % call.key_heads == 0 else "broadcast heads"


def _efficient_groups(call: Attention, gpu: GPU, torch: tuple[int, int]) -> str:
    # Grouped heads in the efficient kernel came with torch 2.14 (pytorch pull request 191085).
    if call.heads != call.key_heads and torch < (2, 14):
        return "grouped heads before torch 2.14"
    return _flash_groups(call, gpu, torch)


def _efficient_dtype(call: Attention, gpu: GPU, torch: tuple[int, int]) -> str:
    if call.dtype == "bfloat16" and gpu.capability < (8, 0):
        return "bfloat16 before sm_80"
    return "" if call.dtype in (*HALVES, "float32") else f"dtype {call.dtype}"


def _cudnn_present(call: Attention, gpu: GPU, torch: tuple[int, int]) -> str:
    return "" if gpu.cudnn and gpu.capability in ((9, 0), (10, 0), (10, 3)) else "cuDNN not preferred here"


def _cudnn_head(call: Attention, gpu: GPU, torch: tuple[int, int]) -> str:
    limit = 256 if gpu.capability[0] == 9 and gpu.cudnn >= 91000 else 128
    if call.head % 8 or call.value_head % 8:
        return "head size not a multiple of 8"
    return f"head size over {limit}" if max(call.head, call.value_head) > limit else ""


def _mask_not_trained(call: Attention, gpu: GPU, torch: tuple[int, int]) -> str:
    return "a mask that requires a gradient" if call.mask_trained else ""


RULES: dict[str, tuple[Rule, ...]] = {
    "cudnn": (_cudnn_present, _flash_groups, _sixteen_bits, _cudnn_head, _mask_not_trained),
    "flash": (_no_mask, _ampere, _flash_groups, _flash_head, _sixteen_bits, _square_if_causal),
    "efficient": (_efficient_dtype, _efficient_head, _efficient_groups),
    "math": (),
}


def order(gpu: GPU) -> tuple[str, ...]:
    """Return the kernels in the order in which they are tried.

    torch 2.13 prefers cuDNN over flash on sm_90 and sm_100 if cuDNN is newer than 9.15.0.
    """
    if gpu.cudnn > 91500 and gpu.capability in ((9, 0), (10, 0), (10, 3)):
        return ("cudnn", "flash", "efficient", "math")
    return ("flash", "efficient", "math", "cudnn")


def choose(call: Attention, gpu: GPU, torch: tuple[int, int], only: str = "") -> str:
    """Return the kernel of one attention call; `only` forces one, as ``sdpa_kernel`` does.

    Raises `ValueError` if `only` names no kernel or one that refuses this call.
    """
    for kernel in (only,) if only else order(gpu):
        if kernel not in RULES:
            raise ValueError(f"no attention kernel named {kernel!r}; there are {', '.join(RULES)}")
        reasons = refusals(kernel, call, gpu, torch)
        if not reasons:
            return kernel
        if only:
            raise ValueError(f"{kernel} attention refuses {'; '.join(reasons)}")
    return "math"


def refusals(kernel: str, call: Attention, gpu: GPU, torch: tuple[int, int]) -> tuple[str, ...]:
    """Return why `kernel` does not take this call, an empty tuple if it does."""
    return tuple(reason for rule in RULES[kernel] if (reason := rule(call, gpu, torch)))
