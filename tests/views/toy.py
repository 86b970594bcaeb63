"""A ledger made by hand: three layers, every kind of line, sizes that add up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peakmem.ledger import ChartRow, Detail, KindPeak, Ledger, Line, Parameters, Peak, Totals

MIB = 2**20
NAMES = ("weights", "gradients", "optimizer_state", "activations", "temporary")


def kinds(*sizes: float) -> dict[str, int]:
    """Sizes in MiB of weights, gradients, optimizer state, activations, temporary."""
    return {name: int(size * MIB) for name, size in zip(NAMES, sizes)}


def row(moment: str, end: tuple[float, ...], peak: tuple[float, ...]) -> ChartRow:
    """One moment."""
    return ChartRow(moment, int(sum(end) * MIB), int(sum(peak) * MIB), kinds(*end), kinds(*peak))


CHART = (
    row("start", (1536, 0, 3072), (1536, 0, 3072)),
    row("F1", (1536, 0, 3072, 256), (1536, 0, 3072, 256, 64)),
    row("F2", (1536, 0, 3072, 512), (1536, 0, 3072, 512, 64)),
    row("F3", (1536, 0, 3072, 1024), (1536, 0, 3072, 1024, 512)),
    row("B3", (1536, 512, 3072, 512), (1536, 0, 3072, 1024, 1024)),
    row("B2", (1536, 1024, 3072, 256), (1536, 1024, 3072, 512, 64)),
    row("B1", (1536, 1536, 3072), (1536, 1536, 3072, 256, 64)),
    row("step", (1536, 1536, 3072), (1536, 1536, 3072)),
    row("clear", (1536, 0, 3072), (1536, 1536, 3072)),
)
LINES = (
    Line("layers.*.proj.weight", "weights", 512 * MIB, 3, "2·h·f", "2·16384·16384", "start", "",
         "read in every forward and backward", "modeling_toy.py", at_peak=3),
    Line("layers.*.proj.weight/exp_avg", "optimizer_state", 512 * MIB, 3, "2·h·f", "2·16384·16384", "start", "",
         "layers.*.proj.weight/exp_avg: what the optimizer remembers", "optim/adam.py", at_peak=3),
    Line("layers.*.proj.weight/exp_avg_sq", "optimizer_state", 512 * MIB, 3, "2·h·f", "2·16384·16384", "start", "",
         "layers.*.proj.weight/exp_avg_sq: what the optimizer remembers", "optim/adam.py", at_peak=3),
    Line("layers.*.proj.weight gradient", "gradients", 512 * MIB, 3, "2·h·f", "2·16384·16384",
         "backward/layers.*/proj", "clear/zero_grad", "what backward found", "modeling_toy.py"),
    Line("layers.*.proj/input", "activations", 256 * MIB, 3, "2·b·s·h", "2·1·8192·16384", "forward/layers.*/norm",
         "backward/layers.*/proj", "gradient of layers.*.proj.weight", "modeling_toy.py", at_peak=3),
    Line("layers.*.proj/output gradient", "temporary", 64 * MIB, 3, "2·b·s·h/4", "2·1·8192·4096",
         "backward/layers.*/proj", "backward/layers.*/proj", "passed on", "modeling_toy.py"),
    Line("loss/log-probabilities", "activations", 256 * MIB, 1, "4·b·s·V", "4·1·8192·8192", "forward/loss",
         "backward/loss", "slope of log_softmax", "modeling_toy.py", at_peak=1),
    Line("loss/logits in fp32", "temporary", 512 * MIB, 1, "4·b·s·V·2", "4·1·8192·16384", "forward/loss",
         "backward/loss", "the loss is taken in fp32", "modeling_toy.py", at_peak=1),
    Line("loss/logits in fp32 gradient", "temporary", 512 * MIB, 1, "4·b·s·V·2", "4·1·8192·16384", "backward/loss",
         "backward/loss", "passed on to the head", "modeling_toy.py", at_peak=1),
    Line("step", "optimizer_state", 512, 1, "4", "4", "start", "", "how many steps there were", "optim/adam.py"),
    Line("cuBLAS workspace", "temporary", 32 * MIB, 2, "32·2^20", "33554432", "forward", "", "one for each handle",
         "CublasHandlePool.cpp", scratch=True, at_peak=2),
)
DETAIL = Detail(
    Peak(6656 * MIB, "backward/loss", kinds(1536, 0, 3072, 1024, 1024), "3·2·h·f + …", "3·2·16384·16384 + …"),
    {
        "weights": KindPeak(1536 * MIB, "start", "n·2·h·f", "3·2·16384·16384", "parameters", "modeling_toy.py"),
        "gradients": KindPeak(1536 * MIB, "backward/embed_tokens", "n·2·h·f", "3·2·16384·16384", "one for each "
                              "weight", "modeling_toy.py"),
        "optimizer_state": KindPeak(3072 * MIB, "start", "2·n·2·h·f", "2·3·2·16384·16384", "Adam's m and v",
                                    "optim/adam.py"),
        "activations": KindPeak(1024 * MIB, "forward/loss", "n·2·b·s·h + 4·b·s·V", "3·2·1·8192·16384 + 4·1·8192·8192",
                                "saved for backward", "modeling_toy.py"),
        "temporary": KindPeak(1024 * MIB, "backward/loss", "2·4·b·s·V·2", "2·4·1·8192·16384", "the loss",
                              "modeling_toy.py"),
    },
    CHART,
    LINES,
    {"forward": 10**12, "backward": 2 * 10**12},
)
RUN: Mapping[str, Any] = {
    "peakmem": "0.1.0", "mirrors": {"torch": "2.13.0", "transformers": "5.24.0"},
    "model": {"name": "toy", "architecture": "toy", "layers": 3}, "run": "training", "sequence": 8192, "batch": 1,
    "accumulation": 1, "precision": "bf16", "optimizer": "adamw", "attention": "auto", "checkpoint": "none",
}
PHASES = {"step_start": 4608 * MIB, "after_forward": 5632 * MIB, "forward_peak": 6144 * MIB,
          "after_backward": 6144 * MIB, "backward_peak": 6656 * MIB, "optimizer_peak": 6144 * MIB,
          "step_end": 4608 * MIB}
TIMELINE = (("start", kinds(1536, 0, 3072)), ("forward/layers.0", kinds(1536, 0, 3072, 1024)),
            ("backward/loss", kinds(1536, 0, 3072, 1024, 1024)), ("clear", kinds(1536, 0, 3072)))


def toy(**changes: Any) -> Ledger:
    """The ledger; `changes` are fields of `Ledger`."""
    fields: dict[str, Any] = {
        "origin": "estimate", "run": RUN, "notes": ("toy: sizes are made up, but they add up",),
        "totals": Totals(6656 * MIB, 6720 * MIB), "phases": PHASES,
        "parameters": Parameters(805306368, 805306368, 805306368),
        "walk": lambda: DETAIL, "unroll": lambda: TIMELINE,
    }
    return Ledger(**(fields | changes))
