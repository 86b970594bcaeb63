"""Every allocation and release of a fake run, in order.

`Tracer` stands above ``FakeTensorMode``: whatever an operation returns with a storage not seen before is an
allocation, and the end of that storage's life is a release.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.nested._internal.nested_tensor import NestedTensor
from torch.utils._python_dispatch import TorchDispatchMode

from . import bits, rewrites
from .attention import AttentionOnGPU
from .blocks import Block, Life
from .failures import mark
from .modules import Modules
from .on_meta import ALIKE, told
from .process import TraceError
from .scratch import KNOWN, Rule, Taken
from .unanswerable import refuse_layout, refuse_nested, why_unanswerable

_Tensor = torch.Tensor
_device_of = torch.ops.prim.device.default
_add = torch.ops.aten.add.Tensor
_to_copy = torch.ops.aten._to_copy.default
_item = torch.ops.aten._local_scalar_dense.default
_nonzero = torch.ops.aten.nonzero.default
_resize = torch.UntypedStorage.resize_
_wait = torch.ops._c10d_functional.wait_tensor.default
_current_node = torch._C._current_autograd_node
_sequence = torch._C._autograd._get_sequence_nr
_FAKE = (FakeTensor,)
_WEIGHTS = ("parameter", "unsharded")
_SPECIAL = rewrites.ONLY_IN_PLACE | ALIKE | {_item, _add, _wait}


class Tracer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records events while active.

    `events`: (block, +bytes or -bytes) in order, unrounded. `phases`: (name, micro-batch, index of its first event).
    `notes`: what the reader of the numbers must know. `answers`: values given to code that asked a fake tensor for its
    contents, by who asked and the operation that made it. `keeps`: operations whose results selective checkpointing
    keeps. `last`: the operation that ran last, `ran`: all of them. `scratch`: what kernels took for themselves.
    """

    def __init__(self, device: str = "cuda", attention: AttentionOnGPU | None = None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.device, self.attention = device, attention
        self.events: list[tuple[Block, int]] = []
        self.phases: list[tuple[str, int, int]] = []
        self.operations: list[int] = []
        self.notes: list[str] = []
        self.answers: dict[tuple[str, str, object], None] = {}
        self.scratch: list[Taken] = []
        self.ran: set[Any] = set()
        self.keeps: frozenset[str] = frozenset()
        self.operation_count = 0
        self.last: Any = None
        self._live: dict[int, Life] = {}
        self._moved: list[Life] = []
        self._modules = Modules()
        self._inside = bits.inside()
        self._asked_device = False
        self._backward = self._forward = False
        self._phase = -1
        self._closed = False
        self._lock = threading.RLock()

    # --- what happens -------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if types != _FAKE:
            for kind in types:
                if kind is NestedTensor:
                    refuse_nested(f"{func.name()} in {self.module() or 'the root module'} takes or makes")
                if kind is not FakeTensor and issubclass(kind, _Tensor) and hasattr(kind, "__tensor_flatten__"):
                    return NotImplemented  # a wrapper such as DTensor: its own rules ask again with plain tensors
        if func is _device_of:
            self._asked_device = True
            return args[0].fake_device if types == _FAKE else func(*args)
        self.operation_count += 1
        self.last = func
        if self._backward:
            if func in rewrites.REWRITTEN:
                rewritten = rewrites.in_place(func, args, self._asked_device, _current_node())
                if rewritten is not None:
                    func = rewritten
            self._asked_device = False
        if func in _SPECIAL:
            if func in rewrites.ONLY_IN_PLACE:
                return None
            if func is _item:
                return self._answer(args[0], told(args[0]))
            if func in ALIKE:
                return self._answer(args[0], True)
            if func is _wait:  # its fake kernel makes a second tensor; the real one returns its argument
                return args[0]
            if self.attention is not None and self.attention.adds_in_place:
                return self._take_over(args[0], func(*args))
        before = len(self.events)
        try:
            out = func(*args, **kwargs) if kwargs else func(*args)
        except Exception as error:
            if reason := why_unanswerable(error, func.name()):
                raise TraceError(f"{func.name()} in {self.module() or 'the root module'}: {reason}") from error
            mark(error, func.name(), self.module() or None)
            raise
        inside = self._begin_inside(func, args, kwargs or {}) if func in self._inside else ()
        if func in rewrites.LAID_OTHERWISE:
            out = rewrites.laid_as_by_kernel(func, out, args)
        if isinstance(out, _Tensor):
            self._see(out, func, args)
        elif isinstance(out, (tuple, list)):
            for item in out:
                if isinstance(item, _Tensor):
                    self._see(item, func, args)
                elif isinstance(item, (tuple, list)):
                    for inner in item:
                        if isinstance(inner, _Tensor):
                            self._see(inner, func, args)
        self.events += [(block, -block.bytes) for block in inside]
        self.ran.add(func)
        if func in KNOWN:
            self._note(KNOWN[func], func, args, before)
        return out

    def _begin_inside(self, func: Any, args: Any, kwargs: Any) -> list[Block]:
        tensors = self._inside[func](*args, **kwargs)
        blocks = [Block(t.nbytes, func.name(), self.module(), self._phase, t) for t in tensors]
        self.events += [(block, block.bytes) for block in blocks]
        return blocks

    def _note(self, rule: Rule, func: Any, args: Any, begin: int) -> None:
        pieces = rule.pieces(*args)
        if pieces:
            self.scratch.append(Taken(begin, len(self.events), func.name(), self.module(), pieces, rule.source))

    def _see(self, tensor: torch.Tensor, func: Any, args: Any) -> None:
        if tensor.layout is not torch.strided or tensor.is_nested:
            refuse_layout(tensor, f"{func.name()} in {self.module() or 'the root module'} makes")
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._live or tensor.device.type != self.device:
            return
        size = storage.nbytes()
        if func in rewrites.FULL_STORAGE:
            size = rewrites.storage_bytes(args, size)
        block = Block(size, func.name(), self.module(), self._phase, tensor)
        if func is _to_copy and self._forward:
            source = self.block_of(args[0])
            if source is not None and source.kind in _WEIGHTS and source.dtype.itemsize > tensor.dtype.itemsize:
                block.cast_of = source
        self._born(storage, key, block)
        if func in rewrites.WHOLE_FIRST and tensor.dim() == 0:
            whole = Block(rewrites.elementwise_bytes(args), func.name(), self.module(), self._phase, args[0])
            self.events += [(whole, whole.bytes), (whole, -whole.bytes)]

    def _take_over(self, old: torch.Tensor, new: torch.Tensor) -> torch.Tensor:
        # _scaled_dot_product_attention_math adds the mask in place, but not on a tensor subclass (attention.cpp).
        life = self._live.pop(old.untyped_storage()._cdata, None)
        if life is None:
            return new
        life.moved = True
        storage = new.untyped_storage()
        heir = Life(storage, self._die)
        heir.block, heir.key, heir.moved, heir.held = life.block, storage._cdata, False, True
        self._live[heir.key] = heir
        self._moved.append(life)
        return new

    def _born(self, storage: Any, key: int, block: Block) -> None:
        life = Life(storage, self._die)
        life.block, life.key, life.moved, life.held = block, key, False, block.bytes > 0
        self._live[key] = life
        # While nodes run, only a layer that runs again wants gradients.
        block.rerun = self._backward and (
            self._modules.running or torch.is_grad_enabled() and _current_node() is not None
        )
        if life.held:
            self.events.append((block, block.bytes))

    def _die(self, life: Life) -> None:
        # A new storage may already have the same address.
        if self._live.get(life.key) is life:
            del self._live[life.key]
        if life.moved:
            self._moved.remove(life)
        elif life.held and not self._closed:
            self.events.append((life.block, -life.block.bytes))

    def _resize(self, storage: Any, size: int) -> None:
        before = storage.nbytes()
        _resize(storage, size)
        key = storage._cdata
        life = self._live.get(key)
        if life is None or before == size:
            return
        if life.held:
            self.events.append((life.block, -life.block.bytes))
        life.held = size > 0
        if life.held:
            old = life.block
            life.block = Block(size, "resize_", old.module, self._phase, old)
            life.block.kind = "unsharded"
            self.events.append((life.block, size))

    def _answer(self, tensor: torch.Tensor, value: object) -> object:
        known = getattr(tensor, "constant", None)
        if known is not None and known.numel() == 1:
            return known.item()
        if tensor.device.type == self.device:
            block = self.block_of(tensor)
            self.answers[(self._who(), block.op if block else "", value)] = None
        return value

    def _who(self) -> str:
        phase = self.phases[-1][0] if self.phases else ""
        whole = {"optimizer": "the optimizer", "clip": "clipping", "zero": "the optimizer"}.get(phase, "the model")
        return self.module() or whole

    # --- what is known ------------------------------------------------------------------------------------------

    def track(self, tensor: torch.Tensor, kind: str, module: str = "", name: str = "") -> Block:
        """Return the block of a tensor, counting it as allocated now if it is new (parameters, inputs)."""
        tensor = plain(tensor)
        storage = tensor.untyped_storage()
        life = self._live.get(storage._cdata)
        if life is None:
            block = Block(storage.nbytes(), "", module, self._phase, tensor)
            self._born(storage, storage._cdata, block)
        else:
            block = life.block
        block.kind, block.name = kind, name or block.name
        return block

    def block_of(self, tensor: torch.Tensor) -> Block | None:
        """Return the block a tensor lives in, None if it is not on the device."""
        life = self._live.get(tensor.untyped_storage()._cdata)
        return None if life is None else life.block

    def enter(self, name: str, micro_batch: int = 0) -> None:
        """Start a phase."""
        self.phases.append((name, micro_batch, len(self.events)))
        self.operations.append(self.operation_count)
        self._phase = len(self.phases) - 1
        self._backward, self._forward = name == "backward", name == "forward"

    def close(self) -> None:
        """End the last phase; what dies later is no longer recorded."""
        self.enter("end")
        self._closed = True

    def module(self) -> str:
        """Return the module at work; in a backward the one whose forward made the node."""
        return self._modules.at_work(self._backward)

    def doing(self) -> str:
        """Return phase, module and last operation, for a reader who waits."""
        phase = self.phases[-1][0] if self.phases else ""
        module = self.module() or ("the root module" if phase in ("forward", "backward") else "")
        last = self.last.name() if self.last is not None else ""
        return " ".join(part for part in (phase, module and f"in {module}", last and f"after {last}") if part)

    @contextmanager
    def watching(self, model: torch.nn.Module) -> Iterator[None]:
        """Follow the forward of `model`'s modules and what they save for the backward."""
        resize = mock.patch.object(torch.UntypedStorage, "resize_", lambda storage, size: self._resize(storage, size))
        with self._modules.followed(model), resize, torch.autograd.graph.saved_tensors_hooks(self._pack, _unpack):
            yield

    def _pack(self, tensor: torch.Tensor) -> torch.Tensor:
        life = self._live.get(tensor.untyped_storage()._cdata)
        if life is not None:
            life.block.saved = True
        node = tensor.grad_fn
        if node is not None and node._sequence_nr() == _sequence() - 1:
            return tensor.detach()  # the result of the node that saves it: the two would hold one another
        return tensor


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor that holds the bytes of a wrapper with one inner tensor (DTensor, Parameter of one)."""
    while not isinstance(tensor, FakeTensor) and hasattr(tensor, "__tensor_flatten__"):
        names, _ = tensor.__tensor_flatten__()
        tensor = getattr(tensor, names[0])
    return tensor


def _unpack(tensor: torch.Tensor) -> torch.Tensor:
    return tensor
