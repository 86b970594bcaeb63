"""bitsandbytes on a fake GPU: packed weights and 8-bit states with the bytes of real ones, and no contents.

Its own modules, optimizers and operators run; what looks at values, or asks the driver for memory, is replaced.
Written after bitsandbytes 0.50.2.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import Any
from unittest import mock

import torch

from peakmem.errors import Missing
from peakmem.tables.quantised import FEW_ROWS

from .process import TraceError

MANAGED = ("{size} bytes of paged optimizer states lie in managed memory, outside PyTorch's allocator, and are not "
           "counted: the driver moves them between host and GPU")


def needed() -> Any:
    """Return the package. Raises `Missing`."""
    if find_spec("bitsandbytes") is None:
        raise Missing("tracing 4-bit weights and 8-bit optimizers needs bitsandbytes: pip install bitsandbytes")
    import bitsandbytes

    return bitsandbytes


def quantise(model: torch.nn.Module, scheme: str, dtype: torch.dtype, kept: Iterable[str] = ()) -> None:
    """Put 4-bit layers in place of a meta model's linear layers, as transformers' integrations/bitsandbytes.py does.

    `scheme`: nf4 or fp4, with ``-double`` where scales are packed, too. `dtype`: what products are computed in.
    `kept`: names of modules left as they are, besides those that transformers itself leaves: heads, the last module,
    what its class keeps in fp32.
    """
    from transformers import PreTrainedModel
    from transformers.quantizers.base import get_keys_to_not_convert
    from transformers.quantizers.quantizers_utils import should_convert_module

    layer = needed().nn.Linear4bit
    known: Any = model
    left = [*kept, *get_keys_to_not_convert(known), *(known._keep_in_fp32_modules or ())]
    for path, module in list(model.named_modules()):
        for name, child in list(module.named_children()):
            whole = f"{path}.{name}" if path else name
            sizes = _sizes(child)
            if sizes and should_convert_module(whole, left):
                with torch.device("meta"):
                    made = layer(*sizes, child.bias is not None, compute_dtype=dtype,
                                 compress_statistics=scheme.endswith("double"), quant_type=scheme[:3])
                setattr(module, name, made.to(child.weight.dtype).requires_grad_(False))
    for module in model.modules():
        if isinstance(module, PreTrainedModel):
            module.config._is_quantized = True  # Jamba asks for it
    known.is_loaded_in_4bit, known.hf_quantizer = True, None  # what peft asks for


def _sizes(module: torch.nn.Module) -> tuple[int, int] | None:
    """Return inputs and outputs of a layer that is replaced; GPT-2's Conv1D is a linear layer lying on its side."""
    if type(module) is torch.nn.Linear:
        return module.in_features, module.out_features
    weight: Any = getattr(module, "weight", None)
    return tuple(weight.shape) if type(module).__name__ == "Conv1D" else None


def is_packed(parameter: torch.Tensor) -> bool:
    """Return whether the parameter will be packed when it comes to a GPU."""
    return type(parameter).__name__ == "Params4bit"


def packed(weight: Any, device: str) -> torch.nn.Parameter:
    """Return the packed form of a 4-bit layer's weight, with its state (functional.py, quantize_4bit)."""
    from bitsandbytes import functional

    state_of: Any = functional.QuantState

    def empty(size: int | tuple[()], dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.empty(size, dtype=dtype, device=device)

    count = weight.numel()
    blocks = -(-count // weight.blocksize)
    double = weight.compress_statistics
    state = state_of(
        absmax=empty(blocks, torch.uint8 if double else torch.float32),
        shape=weight.shape,
        dtype=weight.dtype,
        blocksize=weight.blocksize,
        code=empty(16),
        quant_type=weight.quant_type,
        offset=empty(()) if double else None,
        state2=state_of(absmax=empty(-(-blocks // 256)), code=empty(256), blocksize=256, dtype=torch.float32)
        if double
        else None,
    )
    storage = weight.quant_storage
    data = torch.empty((-(-count // (2 * storage.itemsize)), 1), dtype=storage, device=device)
    made: Any = torch.nn.Parameter(data, requires_grad=False)
    made.quant_state = state
    return made  # type: ignore[no-any-return]


def states_of(parameter: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors of a packed weight's state, with their names."""
    state = getattr(parameter, "quant_state", None)
    if state is None:
        return
    yield from (("absmax", state.absmax), ("code", state.code))
    if state.offset is not None:
        yield from (("offset", state.offset), ("absmax of absmax", state.state2.absmax))
        yield "code of absmax", state.state2.code


def elements(parameter: torch.Tensor) -> int:
    """Return how many numbers a parameter stands for."""
    state = getattr(parameter, "quant_state", None)
    return int(parameter.numel() if state is None else state.shape.numel())


def inside() -> dict[Any, Callable[..., list[torch.Tensor]]]:
    """Return, by operation, what tells of the tensors that live until its result is there, which no trace sees."""
    return {torch.ops.bitsandbytes.gemm_4bit.default: dequantised} if "bitsandbytes" in sys.modules else {}


def dequantised(x: torch.Tensor, weight: torch.Tensor, shape: Sequence[int], absmax: torch.Tensor, blocksize: int,
                scheme: str, bias: object = None, absmax_8bit: torch.Tensor | None = None,
                *others: object, **named: object) -> list[torch.Tensor]:
    """Return what backends/cuda/ops.py, _dequant_linear_fallback, makes for many rows: scales, then the matrix."""
    if x.numel() // x.shape[-1] <= FEW_ROWS:
        return []
    scales = [] if absmax_8bit is None else 2 * [torch.empty(absmax_8bit.shape, dtype=torch.float32, device="meta")]
    return [*scales, torch.empty(tuple(shape), dtype=x.dtype, device="meta")]


@contextmanager
def without_values(wanted: bool, note: Callable[[str], None] = lambda text: None) -> Iterator[None]:
    """Let the optimizers work on tensors without contents while the context lasts.

    `wanted`: whether the package is used though nobody has imported it yet. `note` hears what is not counted.
    """
    if not wanted and "bitsandbytes" not in sys.modules or find_spec("bitsandbytes") is None:
        yield
        return
    from bitsandbytes import functional, nn

    layers: Any = nn
    paged: list[int] = []

    def get_paged(*shape: int, dtype: torch.dtype = torch.float32, device: object = None) -> torch.Tensor:
        made: Any = torch.empty(shape, dtype=dtype, device="cpu")
        made.is_paged = True
        paged.append(made.numel() * dtype.itemsize)
        return made  # type: ignore[no-any-return]

    def refused(*args: object, **kwargs: object) -> None:
        raise TraceError("bitsandbytes' Linear8bitLt: a trace cannot follow its 8-bit products; take Linear4bit, or "
                         "see peakmem estimate --weights int8")

    with ExitStack() as stack:
        for target, name, value in (
            (functional, "create_dynamic_map", lambda *args, **kwargs: torch.empty(256, device="cpu")),
            (functional, "get_paged", get_paged),
            (functional, "fill", lambda *args, **kwargs: None),
            (functional, "prefetch_tensor", lambda *args, **kwargs: None),
            (layers.Linear8bitLt, "forward", refused),
        ):
            stack.enter_context(mock.patch.object(target, name, value))
        yield
    if paged:
        note(MANAGED.format(size=sum(paged)))
