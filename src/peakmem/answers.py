"""What a plan finds out and a view shows: plain data between the two."""

from __future__ import annotations

from peakmem.immutable import immutable


@immutable
class Headroom:
    """Whether a run fits on one GPU.

    used: bytes in the best total known, `total` says which; context: lowest and highest bytes outside of PyTorch's
    allocator; capacity: bytes that the run may use; sold: True where nobody has printed what PyTorch reports, so that
    capacity is what the box says; note: how the GPU's name or size was understood.
    """

    gpu: str
    used: int
    total: str
    context: tuple[int, int]
    capacity: int
    sold: bool = False
    note: str = ""

    @property
    def need(self) -> int:
        """Bytes, cautiously: with the upper end of the context."""
        return self.used + self.context[1]

    @property
    def spare(self) -> int:
        """Bytes left over; negative: bytes too many."""
        return self.capacity - self.need

    @property
    def close(self) -> bool:
        """Too close to tell: as sold, the last 5 % may not be there."""
        return self.sold and 0 <= self.spare < self.capacity * 0.05

    @property
    def fits(self) -> bool:
        return self.spare >= 0 and not self.close

    @property
    def percent(self) -> float:
        """Share of the capacity that is needed."""
        return 100 * self.need / self.capacity


@immutable
class Change:
    """A lever tried on the reader's own run.

    flags: what to add to the command; before, after: bytes in tensors; refused: why it cannot be combined
    with the rest, then after is 0; costs: what is paid for it.
    """

    lever: str
    flags: str
    before: int
    after: int
    fits: bool = False
    costs: str = ""
    refused: str = ""


@immutable
class Compared:
    """One published figure and ours. error: ours in percent of it, below 0 where we were under.

    reading: which of our numbers was compared; counted: the thresholds on training are about rows like this one;
    serves: it is inference; gpus: how many shared the work, the figure being one GPU's.
    """

    name: str
    family: str
    model: str
    reading: str
    published: int
    estimated: int
    error: float
    counted: bool
    serves: bool = False
    gpus: int = 1

    @property
    def demanded(self) -> bool:
        """Whether any threshold is about it."""
        return self.counted or self.serves or self.reading == "reserved" and self.gpus == 1


@immutable
class Threshold:
    """One demand, what was found, and whether it is met."""

    name: str
    wanted: str
    found: str
    met: bool


@immutable
class Summary:
    """Errors of some rows, in percent: how many, the median and the 95th percentile of their size, the worst, how
    often we were under, and the furthest under."""

    name: str
    rows: int
    median: float
    late: float
    worst: float
    under: int
    lowest: float


@immutable
class Accuracy:
    """Published runs against estimates. refused: name and reason of every row that no settings express."""

    compared: tuple[Compared, ...]
    refused: tuple[tuple[str, str], ...]
    summaries: tuple[Summary, ...]
    thresholds: tuple[Threshold, ...]

    @property
    def met(self) -> bool:
        return all(threshold.met for threshold in self.thresholds)


@immutable
class Finding:
    """One thing that an out-of-memory message means. about: capacity, limit, pieces, others, context, count, tensor."""

    about: str
    text: str


@immutable
class Diagnosis:
    """What an out-of-memory message says of a run.

    asked: the message in one sentence; findings: what it means, the cause first; advice: what to do; gpu: what to give
    as --gpu, a name or a size; gpus: names of GPUs with this capacity; allocated, reserved, device: bytes measured when
    it failed, device None where the message does not tell this process from others; suspects: names of lines whose
    request prints the same size.
    """

    asked: str
    findings: tuple[Finding, ...]
    advice: tuple[str, ...]
    gpu: str
    gpus: tuple[str, ...]
    allocated: int
    reserved: int
    device: int | None = None
    suspects: tuple[str, ...] = ()
