"""Tensors without numbers, and the tape on which they are born and die.

A storage is alive while a Python variable, a node that saved it or a gradient buffer holds it: CPython's
reference counts do for the symbol what they do for the real tensor, so forward code written like the real
model's has the real lifetimes. The tape holds `+storage` and `~storage` events, and marks: a phase, a place,
the begin and end of a stretch that is repeated.
"""

from __future__ import annotations

from _thread import RLock
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from peakmem.estimate.layout import Dims, Memory, flat, renamed, size_key

if TYPE_CHECKING:
    from peakmem.estimate.node import Node
    from peakmem.estimate.recompute import Keeper
    from peakmem.estimate.structure import Segment

Key = tuple[Any, ...]  # (bytes, letters) or ("+", key, key, …)


class Phase(NamedTuple):
    """From here on the events belong to this phase: `forward`, `backward.1`, `optimizer` …"""

    name: str


class Begin(NamedTuple):
    """What follows, up to its End, happens `times` times in a row; times is a letter such as `n-1`.

    Inside a repeated layer may be one more such stretch: a loop over tokens.
    """

    times: str


class End(NamedTuple):
    """The end of a repeated stretch."""


class Place(NamedTuple):
    """Where in the model, and in which operation, the next events happen."""

    path: str


class Block(NamedTuple):
    """A layer begins or ends here; moments are counted in layers."""

    begins: bool


class Record:
    """What the ledger will say of one storage."""

    __slots__ = ("key", "name", "kind", "why", "scratch", "fold", "scope", "saved", "place", "purpose",
                 "source", "loss")

    def __init__(self, key: Key, name: str, kind: str, fold: str, scratch: bool, scope: str) -> None:
        self.key, self.name, self.kind, self.fold, self.scratch, self.scope = key, name, kind, fold, scratch, scope
        self.why: list[str] = []
        self.saved = False  # a node of the graph needs it
        self.loss = False  # what backward begins with
        self.place = "device"  # or host, disk
        self.purpose = ""  # what it is for, where its kind does not say so
        self.source = ""  # the code it mirrors, where that is not the model's


class Storage:
    """Memory of one tensor and of all its views; its death is an event."""

    __slots__ = ("events", "index", "record")

    def __init__(self, tape: Tape, record: Record) -> None:
        self.events, self.index, self.record = tape.events, len(tape.records), record
        tape.records.append(record)
        tape.events.append(self.index)

    def __del__(self) -> None:
        self.events.append(~self.index)


class Tensor:
    """Shape, dtype, memory order and storage; `node` is what made it, where a gradient is wanted."""

    __slots__ = ("dims", "dtype", "memory", "storage", "node", "slot", "view")

    def __init__(self, dims: Dims, dtype: str, memory: Memory, storage: Storage | None, view: bool = False) -> None:
        self.dims, self.dtype, self.memory, self.storage, self.view = dims, dtype, memory, storage, view
        self.node: Node | None = None
        self.slot = 0

    @property
    def needs_grad(self) -> bool:
        return self.node is not None

    @property
    def record(self) -> Record | None:
        return self.storage.record if self.storage else None

    @property
    def name(self) -> str:
        return self.storage.record.name if self.storage else ""

    def seen_as(self, dims: Dims, memory: Memory | None = None) -> Tensor:
        """The same storage under another shape, outside the graph."""
        return Tensor(dims, self.dtype, self.memory if memory is None else memory, self.storage, True)

    def detached(self) -> Tensor:
        """The same tensor without the graph behind it."""
        return Tensor(self.dims, self.dtype, self.memory, self.storage, self.view)

    def __add__(self, other: Tensor) -> Tensor:
        from peakmem.estimate.ops import add

        return add(self, other)

    def __mul__(self, other: Tensor) -> Tensor:
        from peakmem.estimate.ops import mul

        return mul(self, other)


class Parameter(Tensor):
    """A weight: alive all the time, and, when trained, where gradients end."""

    __slots__ = ("full_name", "trained", "grad", "arrived", "waiting", "fold", "shard", "module", "reached", "within")

    def __init__(self, dims: Dims, dtype: str, storage: Storage | None, full_name: str, trained: bool,
                 fold: str) -> None:
        super().__init__(dims, dtype, flat(dims), storage)
        self.shard: Parameter | None = None  # this GPU's part, where parameters are divided
        self.full_name, self.trained, self.fold = full_name, trained, fold
        self.grad: Tensor | None = None
        self.arrived: Tensor | None = None
        self.waiting, self.within = 0, ""  # within: the module where it is met first, if not the one in its name
        self.reached = True  # by gradients: an optimizer has no state for one that is not
        self.module = ""  # what it belongs to: linear, embedding, head, norm …

    @property
    def needs_grad(self) -> bool:
        return self.trained

    @property
    def name(self) -> str:
        return self.full_name

    @property
    def owned(self) -> Parameter:
        """What the optimizer of this GPU updates: the shard where there is one."""
        return self.shard or self


class Tape:
    """Everything that happens to memory in one run, in order."""

    def __init__(self, ones: frozenset[str] = frozenset()) -> None:
        self.events: list[Any] = []
        self.records: list[Record] = []
        self.parameters: dict[str, Parameter] = {}
        self.elsewhere: list[Record] = []  # what lies in the host's memory or on disk all the time
        self.parts: Any = None  # how parameters are divided over GPUs: estimate/sharding.py
        self.wrap: Callable[..., Tensor] | None = None  # runs a layer as a unit whose parameters are gathered
        self.leave: Callable[[Tensor], None] | None = None  # called with what the model returns, if a loss follows
        self.arrived: Callable[[Parameter], None] | None = None  # called when a parameter's gradient is there
        self.fetch: Callable[[Parameter], None] | None = None  # called before a parameter is read
        self.purpose = ""  # of new tensors, where their kind does not say so
        self.origin = ""  # the code that makes tensors with a purpose
        self.place = "device"  # where new tensors lie; elsewhere they have a size and no events
        self.ones = ones
        self.scope = self.borrowed = self.phase_name = ""  # borrowed: the layer whose parameters others read
        self.layer = ""  # which copy of a repeated layer is being interpreted
        self.fold = ""  # how often the current stretch is repeated, as a letter
        self.loop = ""  # how often what is written now happens in a row within one layer, as a letter
        self.kind = "temporary"
        self.grad_enabled = True
        self.adapter_drops = self.fused_kernels = False  # dropout before adapters; norms write over their gradients
        self.in_graph: list[Tensor] = []  # what nodes keep as attributes: outputs.py
        self.keeps_packed_inputs = self.dequantises_always = False  # bitsandbytes up to 0.42
        self.drops_gradients = False  # each is added to a resident buffer when it arrives
        self.trains_inputs = False  # embeddings are leaves that require a gradient
        self.autocast = ""
        self.router_logits: list[Tensor] | None = None  # collected while the decoder runs, where they are wanted
        self.remembered: list[Tensor] = []  # what modules made in their first forward and keep
        self.casts: dict[int, tuple[Tensor, Tensor]] = {}
        self.pack: Callable[[Tensor], Any] | None = None
        self.keeper: Keeper | None = None  # decides which results checkpointing keeps
        self.cache: dict[str, tuple[Tensor, ...]] = {}  # keys and values of each interpreted layer
        self.read: dict[str, tuple[Tensor, Tensor]] = {}  # keys and values of what an encoder gave, layer by layer
        self.grows = "s"  # the letter of the positions that decoding adds to
        self.states: dict[str, Tensor] = {}  # of layers whose memory of the past has a fixed size
        self.letters: dict[str, str] = {}  # letters that stand for others: one token is decoded
        self.single = self.layer_kind = ""  # single: which decoding step is written; empty: none
        self.stacks: dict[str, tuple[Segment, ...]] = {}  # which layers run before those of this path
        self.ran: dict[int, Segment] = {}  # the stretches that have run, by number
        self.sequence = 0
        self.returned: Callable[[], None] | None = None  # called when the model has returned, before its caller's loss
        self.besides: list[Tensor] = []  # what the model returns beside its logits, in generation
        self.outputs: list[Tensor] | None = None  # what the model returns, where its caller holds it
        self.flops: list[tuple[str, int, tuple[str, ...], str]] = []

    def phase(self, name: str) -> None:
        self.phase_name = name
        self.events.append(Phase(name))

    def at(self, path: str) -> None:
        self.events.append(Place(path))

    def new(self, dims: Dims, dtype: str, memory: Memory | None = None, name: str = "",
            key: Key | None = None, scratch: bool = False) -> Tensor:
        """A tensor with memory of its own. One without elements has no storage, as in PyTorch."""
        order = flat(dims) if memory is None else memory
        if ("0",) in dims:
            return Tensor(dims, dtype, order, None)
        if key is None:
            letters = flat(dims)
            key = size_key(dtype, renamed(letters, self.letters) if self.letters else letters)
        record = Record(key, name or self.scope, self.kind, self.times, scratch, self.scope)
        record.purpose, record.source = self.purpose, self.origin if self.purpose else ""
        if self.place != "device":
            record.place = self.place
            self.elsewhere += [record] if self.kind != "temporary" else []
            return Tensor(dims, dtype, order, None)
        return Tensor(dims, dtype, order, Storage(self, record))

    def count(self, op: str, scope: str, per_element: int, letters: Memory) -> None:
        """Note arithmetic done here: per element, and the letters whose product is the number of elements."""
        self.flops.append((op, per_element, letters, self.times))

    @property
    def times(self) -> str:
        """How often what is written now happens, as a letter."""
        return f"({self.fold})*({self.loop})" if self.fold and self.loop else self.fold or self.loop

    @contextmanager
    def repeated(self, count: str) -> Iterator[None]:
        """What happens inside happens `count` times; an empty count is once."""
        if not count:
            yield
            return
        outer, self.fold = self.fold, count
        self.events.append(Begin(count))
        yield
        self.events.append(End())
        self.fold = outer

    def finish(self) -> None:
        """Cut the events off from the storages that still live, which may die whenever they like.

        Deaths in a row are put in the order of births: Python 3.14 frees variables the other way round."""
        found: list[Any] = []
        for dies, row in groupby(self.events, lambda event: type(event) is int and event < 0):
            found.extend(sorted(row, reverse=True) if dies else row)  # noqa: B031 - once
        self.events = found


_tape: Tape | None = None
_writer = RLock()  # one tape is written at a time, whichever thread asks


def current() -> Tape:
    """The tape that is being written."""
    assert _tape is not None, "no tape is being written"
    return _tape


@contextmanager
def writing(tape: Tape) -> Iterator[Tape]:
    """Make a tape the current one."""
    global _tape
    with _writer:
        outer, _tape = _tape, tape
        try:
            yield tape
        finally:
            _tape = outer


class scope:
    """Name a part of the model while it is interpreted."""

    __slots__ = ("name", "outer")

    def __init__(self, name: str) -> None:
        self.name = name

    def __enter__(self) -> None:
        tape = _tape
        assert tape is not None
        self.outer = tape.scope
        tape.scope = f"{tape.scope}.{self.name}" if tape.scope else self.name

    def __exit__(self, *_: object) -> None:
        assert _tape is not None
        _tape.scope = self.outer
