"""What an out-of-memory message means: what was full and of what, and which tensor was asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from peakmem.allocator.out_of_memory import human
from peakmem.allocator.settings import MIN_LARGE, Settings, rounded
from peakmem.answers import Diagnosis, Finding
from peakmem.ledger import Ledger, Line
from peakmem.measured.out_of_memory import OutOfMemoryMessage, read_message
from peakmem.model import Model
from peakmem.quantity import gib
from peakmem.reasons import sentence
from peakmem.tables.device import context
from peakmem.tables.gpus import GPU, find_gpu, gpus

NEAR = 0.1
"""GiB between what two machines with the same GPU print: drivers and ECC keep a little more or less."""
KEPT = 2**27
"""Bytes of what it calls free that a driver may not give."""
SHOWN = 4
PHASES = {"forward": "forward", "backward": "backward", "optimizer": "the optimizer's step"}
POOL = Settings()


def diagnose(message: OutOfMemoryMessage, ledger: Ledger | None = None, gpu: str = "") -> Diagnosis:
    """gpu: the one that is believed to have run; ledger: of what is believed to have run. Both may be left out."""
    card = named(message.capacity, gpu)
    alike = [row.name for row in near(message.capacity)]
    suspects = asked_for(ledger, message) if ledger else []
    found = [*causes(message), *outside(message, card), *(counted(message, ledger) if ledger else ()),
             *tensors(message, ledger, suspects)]
    where = f" in {PHASES[message.phase]}" if message.phase else ""
    asked = (f"PyTorch wanted {human(message.tried)} more{where}; GPU {message.device} of {human(message.capacity)} "
             f"had {human(message.free)} free. {human(message.allocated)} were in tensors, {human(message.reserved)} "
             "were reserved.")
    return Diagnosis(asked, tuple(found), tuple(advice(message, found)), card.name, tuple(alike), message.allocated,
                     message.reserved, message.used, tuple(dict.fromkeys(line.name for line in suspects)))


def diagnose_run(text: str, model: Model | None = None, settings: Mapping[str, Any] | None = None) -> Diagnosis:
    """A log, and what ran: counted on the GPU that the message is of.

    Errors: Unreadable where the log holds no message; those of an estimate.
    """
    from peakmem.estimate import estimate

    message, given = read_message(text), dict(settings or {})
    given["gpu"] = named(message.capacity, given.get("gpu") or "").name
    return diagnose(message, estimate(model, **given) if model else None, given["gpu"])


def as_json(found: Diagnosis) -> dict[str, Any]:
    """Plain containers, under the names of its fields."""
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(found).items()}
    return {**plain, "findings": [vars(one).copy() for one in found.findings]}


def near(capacity: int) -> list[GPU]:
    """GPUs of which PyTorch reports about this capacity, the nearest first."""
    apart = {row.name: abs(row.torch_gib - capacity / 2**30) for row in gpus() if row.torch_gib}
    return sorted((row for row in gpus() if apart.get(row.name, 1) <= NEAR), key=lambda row: apart[row.name])


def named(capacity: int, believed: str) -> GPU:
    """The GPU that is meant: the believed one if it can be, one that prints this very capacity, else the size."""
    alike = near(capacity)
    if believed and any(row.name == find_gpu(believed).name for row in alike):
        return find_gpu(believed)
    same = [row for row in alike if abs((row.torch_gib or 0) - capacity / 2**30) < 0.006]
    return same[0] if len(same) == 1 else find_gpu(f"{capacity / 2**30:.2f}GiB")


def causes(message: OutOfMemoryMessage) -> Iterator[Finding]:
    """Why this request found no room; of several reasons that hold, each."""
    tried, unfilled = message.tried, message.unallocated
    reached = message.free >= tried + KEPT or (message.reserved + tried > (message.allowed or 0))
    if message.allowed is not None and reached:
        yield Finding("limit", f"A limit was reached, not the end of the GPU: the process may take "
                      f"{human(message.allowed)} (set_per_process_memory_fraction).")
    elif message.free >= tried + KEPT:
        yield Finding("limit", f"The GPU was not full: {human(message.free)} were free. Something else refused: a "
                      "limit of the process, the host's memory or its page file (Windows), or the driver.")
    elif message.free >= tried:
        yield Finding("capacity", f"The GPU was full: its driver gave nothing of the {human(message.free)} that it "
                      "calls free.")
    elif tried > message.capacity:
        yield Finding("capacity", "That is more than the whole GPU has: no other tensor is to blame.")
    elif unfilled >= tried:
        yield Finding("pieces", f"Fragmentation: {human(unfilled)} were reserved and not in use, more than was asked "
                      "for, but in no one piece.")
    elif unfilled + message.free >= tried:
        yield Finding("pieces", f"Fragmentation had a part: {human(unfilled)} reserved and not in use and the "
                      f"{human(message.free)} free would have been enough together.")
    else:
        more = tried - unfilled - message.free
        yield Finding("capacity", f"The GPU was full: even in one piece, what was left falls {gib(more)} short. Of its "
                      f"memory {gib(unfilled)} were reserved and not in use: fragmentation is not the cause.")


def outside(message: OutOfMemoryMessage, card: GPU) -> Iterator[Finding]:
    """What is on the device and not this process's PyTorch."""
    usual = context(card)
    low, high = usual.low * 2**20, usual.high * 2**20
    expected = f"usual: {gib(low)} to {gib(high)}"
    others = message.foreign if message.foreign is not None else max(0, message.outside - high)
    whole = ", enough for this request" if others + message.free >= message.tried > message.free else ""
    if message.own is not None:
        yield Finding("context", f"This process holds {gib(message.own)} outside of PyTorch's allocator: CUDA context "
                      f"and libraries ({expected}).")
        if others > high:  # what the driver keeps, and rounding, is less
            yield Finding("others", f"Other processes hold {gib(others)} of this GPU{whole}.")
    elif others > 0:
        yield Finding("others", f"Somebody else is on this GPU: {gib(message.outside)} are held outside of this "
                      f"process's PyTorch, of which its CUDA context explains {gib(high)} at most ({expected}){whole}.")
    else:
        yield Finding("context", f"{gib(message.outside)} are outside of PyTorch's allocator: CUDA context and "
                      f"libraries ({expected}). No sign of another process.")


def counted(message: OutOfMemoryMessage, ledger: Ledger) -> Iterator[Finding]:
    """How far the run was, against the count."""
    peak = ledger.totals.allocated or ledger.totals.tensors
    wanted = message.allocated + message.tried
    there = f"The run wanted {gib(wanted)} in all; the count for these settings comes to {gib(peak)} at its peak"
    if wanted > 1.02 * peak:
        yield Finding("count", f"{there}. The run holds at least {gib(wanted - peak)} that is not counted: other "
                      "settings ran, or something outside of the step is kept.")
    else:
        yield Finding("count", f"{there}: with this request it would have been at {100 * wanted / peak:.0f} % of it.")


def asked_for(ledger: Ledger, message: OutOfMemoryMessage) -> list[Line]:
    """Lines whose request to the device prints as the message does; those of its phase first, what is there before the
    step last, and otherwise the largest sums first.

    Up to 10 MiB requests share a segment: its size tells nothing, and no line is named.
    """
    if message.tried <= 2 * MIN_LARGE:
        return []
    found = [line for line in ledger.lines if line.place == "device" and printed(line) == human(message.tried)]
    return sorted(found, key=lambda line: (not begins(line, message.phase), line.born.startswith("start"),
                                           -line.bytes * line.count, line.name))


def printed(line: Line) -> str:
    """What the message would say if this tensor found no room."""
    return human(POOL.segment_size(rounded(line.bytes)))


def begins(line: Line, phase: str) -> bool:
    return not phase or line.born.startswith(phase)


def tensors(message: OutOfMemoryMessage, ledger: Ledger | None, suspects: list[Line]) -> Iterator[Finding]:
    """Which tensor it was."""
    if message.tried <= 2 * MIN_LARGE:
        yield Finding("tensor", f"{human(message.tried)} is what PyTorch takes from the GPU for any tensor of up to "
                      f"{'1' if message.tried <= 2 * 2**20 else '10'} MiB: the request says that the GPU was full, not "
                      "which tensor is large.")
        return
    if ledger is None:
        return
    for line in suspects[:SHOWN]:
        many = f", {line.count:,} of them in a step" if line.count > 1 else ""
        yield Finding("tensor", f"{line.name} is of that size: {line.formula} = {line.substituted} = {line.bytes:,} "
                      f"bytes{many}. {sentence(line)}")
    if not suspects:
        sized = [line for line in ledger.lines if line.place == "device"]
        best = min(sized, key=lambda line: (max(line.bytes, message.tried) / max(1, min(line.bytes, message.tried)),
                                            line.name), default=None)
        close = f" The nearest is {best.name}, {gib(best.bytes)}: {best.formula}." if best else ""
        yield Finding("tensor", f"No tensor of these settings has the size that was asked for.{close} Where batch and "
                      "sequence differ from what ran, set them first.")


def advice(message: OutOfMemoryMessage, found: Iterable[Finding]) -> Iterator[str]:
    """What to do about it, in the order in which it costs least."""
    about = {one.about for one in found}
    if "others" in about:
        yield "End the other process (nvidia-smi lists them), or take another GPU with CUDA_VISIBLE_DEVICES."
    if "limit" in about:
        yield "Find the limit that was reached and raise it: to free memory of the GPU does not help."
    if "pieces" in about:
        yield ("Set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, without max_split_size_mb, where it is not set "
               "already: it leaves no holes.")
    if "capacity" in about or "pieces" in about:
        yield "Make the step smaller: the page, and `peakmem estimate` for a GPU, try each lever on what ran."
