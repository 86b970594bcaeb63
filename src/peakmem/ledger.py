"""The ledger: every tensor of a run with its size, its kind and its lifetime. All views read it and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from peakmem.immutable import field, immutable

FORMAT = "peakmem.ledger/1"
# /1: the first format.

KINDS = ("weights", "gradients", "optimizer_state", "activations", "temporary", "kv_cache", "communication")
"""What a tensor is. The order, and one colour each, are the same in every view."""

OUTSIDE = ("cache", "context")
"""What is no tensor: reserved − allocated, and what the driver takes."""

TRAINING_MOMENTS = ("start", "F1", "F2", "F3", "B3", "B2", "B1", "step", "clear")
INFERENCE_MOMENTS = ("load", "P1", "P2", "P3", "first decode", "last decode")

ByKind = Mapping[str, int]


@immutable
class Line:
    """One tensor, or `count` equal ones, one for each layer."""

    name: str  # layers.*.mlp.gate_proj/output
    kind: str  # one of KINDS
    bytes: int  # of one, rounded up to 512
    count: int  # how many are made in the step
    formula: str  # of one: 2·b·s·f
    substituted: str  # 2·1·8192·14336
    born: str  # moment: phase[/layer][/operation]; of a folded line, within its own layer
    freed: str  # the same; empty: it outlives the step
    why: str  # who needs it
    source: str  # which code it mirrors
    scratch: bool = False  # memory that no tensor owns: outside the `tensors` total
    at_peak: int = 0  # how many of them live at the peak
    place: str = "device"  # or host, disk: then in no total of the device

    @property
    def bytes_at_peak(self) -> int:
        return self.bytes * self.at_peak


@immutable
class Totals:
    """Four totals in bytes, never mixed. None: not known.

    tensors: storages rounded to 512; allocated: max_memory_allocated; reserved: max_memory_reserved;
    device: what nvidia-smi would show, lowest and highest. host, disk: what offload puts there, beside these four.
    """

    tensors: int
    allocated: int | None = None
    reserved: int | None = None
    device: tuple[int, int] | None = None
    host: int = 0
    disk: int = 0


@immutable
class Peak:
    """The highest moment: bytes in tensors, when, of what, and the formula with and without numbers."""

    bytes: int
    moment: str
    by_kind: ByKind
    formula: str = ""
    substituted: str = ""


@immutable
class KindPeak:
    """The largest size that one kind reaches, and the rule behind it."""

    largest: int
    at: str
    formula: str
    substituted: str
    why: str
    source: str


@immutable
class ChartRow:
    """One of the nine (inference: six) moments. by_kind adds up to `end`, peak_by_kind to `peak`."""

    moment: str
    end: int
    peak: int
    by_kind: ByKind
    peak_by_kind: ByKind


@immutable
class Parameters:
    """Counts of unique parameters: all, trained, and those that one token meets."""

    total: int
    trained: int
    active: int


@immutable
class Outline:
    """What a picture shows: made without a look at single lines."""

    moment: str  # of the peak
    by_kind: ByKind
    chart: tuple[ChartRow, ...]


@immutable
class Detail:
    """What takes a walk over every tensor: made when first asked for."""

    peak: Peak
    kinds: Mapping[str, KindPeak]
    chart: tuple[ChartRow, ...]
    lines: tuple[Line, ...]
    flops: Mapping[str, int] = field(default_factory=dict)  # forward, backward: of one step


@immutable
class Ledger:
    """The account of one run.

    origin: estimate | trace; run: versions, the model and every setting; notes: what was assumed.
    phases: live bytes in tensors: step_start, after_forward, forward_peak, after_backward, backward_peak,
    optimizer_peak, step_end (inference: load, prefill_peak, decode_peak).
    """

    origin: str
    run: Mapping[str, Any]
    notes: tuple[str, ...]
    totals: Totals
    phases: Mapping[str, int]
    parameters: Parameters
    walk: Callable[[], Detail] = field(repr=False, compare=False)
    unroll: Callable[[], tuple[tuple[str, ByKind], ...]] | None = field(default=None, repr=False, compare=False)
    draw: Callable[[], Outline] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def detail(self) -> Detail:
        return self.walk()

    @cached_property
    def outline(self) -> Outline:
        """Peak and chart by themselves, where nobody asks for lines and rules: a fifth of the work."""
        return self.draw() if self.draw else Outline(self.peak.moment, self.peak.by_kind, self.chart)

    @property
    def peak(self) -> Peak:
        return self.detail.peak

    @property
    def lines(self) -> tuple[Line, ...]:
        return self.detail.lines

    @property
    def chart(self) -> tuple[ChartRow, ...]:
        return self.detail.chart

    @property
    def kinds(self) -> Mapping[str, KindPeak]:
        return self.detail.kinds

    @cached_property
    def timeline(self) -> tuple[tuple[str, ByKind], ...]:
        """Live bytes by kind after every event, for pictures. Empty where the producer kept none."""
        return self.unroll() if self.unroll else ()

    def by_kind(self) -> ByKind:
        """Bytes of each kind at the peak."""
        return self.peak.by_kind

    def largest(self, count: int = 10) -> tuple[Line, ...]:
        """The lines that hold most at the peak."""
        alive = [line for line in self.lines if line.at_peak and not line.scratch]
        return tuple(sorted(alive, key=lambda line: (-line.bytes_at_peak, line.name))[:count])

    def explain(self, part: str = "") -> str:
        """What the ledger says of lines whose name contains `part`, as text."""
        from peakmem.views.explain import explain

        return explain(self, part)

    def as_json(self, timeline: bool = False) -> dict[str, Any]:
        """The ledger as JSON has it, see docs/ledger.md."""
        from peakmem.ledger_json import as_json

        return as_json(self, timeline)

    @staticmethod
    def read(path: Any) -> Ledger:
        """A ledger from a file that a command wrote; `-` is standard input. Errors: Unreadable."""
        from peakmem.ledger_json import read

        return read(path)

    def _repr_html_(self) -> str:
        from peakmem.views.notebook import html

        return html(self)
