"""What lowers memory, and each lever tried on the reader's own run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from peakmem.answers import Change
from peakmem.errors import PeakmemError
from peakmem.immutable import immutable
from peakmem.model import Model
from peakmem.setup import Setup

Settings = Mapping[str, Any]


@immutable
class Lever:
    """One way to lower memory.

    shrinks, costs: in words; source: the paper; flag: how it is switched on; change: from the settings of a run to
    the settings that differ, {} where it is on already or says nothing; undo: from the settings of a run in which it
    is on to those without it, {} where it is not on; alone: it asks for more hardware, or for other training, and is
    taken together with others only after them.
    """

    name: str
    shrinks: str
    costs: str
    source: str
    flag: str
    change: Callable[[Setup], Settings]
    undo: Callable[[Setup], Settings] = lambda _: {}
    alone: bool = False


def _on(name: str, values: tuple[Any, ...], without: Any) -> Callable[[Setup], Settings]:
    """Of a training run in which a setting has one of the values that the lever is, or that include it."""
    def undo(setup: Setup) -> Settings:
        return {name: without} if setup.run == "training" and getattr(setup, name) in values else {}

    return undo


def _halve(setup: Setup) -> Settings:
    """Half the batch at the same tokens per optimizer step, or one sequence where it cannot be halved."""
    if setup.batch == 1:
        return {}
    parts = 2 if setup.batch % 2 == 0 else setup.batch
    changed: dict[str, Any] = {"batch": setup.batch // parts}
    return changed | {"accumulation": setup.accumulation * parts} if setup.run == "training" else changed


def _when(name: str, have: tuple[Any, ...], want: Any) -> Callable[[Setup], Settings]:
    """One setting of a training run, if it is among those that the lever improves."""
    def change(setup: Setup) -> Settings:
        return {name: want} if setup.run == "training" and getattr(setup, name) in have else {}

    return change


def _shard(setup: Setup) -> Settings:
    if setup.shard in ("none", "ddp", "zero1", "zero2"):
        return {"shard": "fsdp2", "gpus": max(8, setup.gpus)} if setup.run == "training" else {}
    return {"gpus": 2 * setup.gpus}


LEVERS: tuple[Lever, ...] = (
    Lever("flash attention", "the sequence × sequence scores", "nothing in practice",
          "Dao et al. 2022, https://arxiv.org/abs/2205.14135",
          "--attention flash", _when("attention", ("eager", "math"), "flash"),
          _on("attention", ("auto", "flash", "efficient", "cudnn", "flash-package"), "eager")),
    Lever("fused optimizer", "temporaries of the optimizer's step", "nothing in practice",
          "torch 2.13 optim/adamw.py: fused",
          "--optimizer-implementation fused", _when("optimizer_implementation", ("auto", "foreach"), "fused"),
          _on("optimizer_implementation", ("fused",), "auto")),
    Lever("chunked loss", "the fp32 logits", "a little speed",
          "torchtune CEWithChunkedOutputLoss",
          "--loss chunked", _when("loss", ("upcast",), "chunked"),
          _on("loss", ("chunked", "fused", "pieces"), "upcast")),
    Lever("fused loss", "the logits altogether", "a custom kernel",
          "Hsu et al. 2024, https://arxiv.org/abs/2410.10989",
          "--loss fused", _when("loss", ("upcast", "chunked"), "fused"),
          _on("loss", ("fused",), "upcast")),
    Lever("selective checkpointing", "activations: only listed operations keep their output",
          "part of a forward more", "Korthikanti et al. 2022, https://arxiv.org/abs/2205.05198",
          "--checkpoint selective", _when("checkpoint", ("none",), "selective"),
          _on("checkpoint", ("selective", "full"), "none")),
    Lever("full checkpointing", "activations: one input per layer, and one layer being recomputed",
          "about one more forward", "Chen et al. 2016, https://arxiv.org/abs/1604.06174",
          "--checkpoint full", _when("checkpoint", ("none", "selective"), "full"),
          _on("checkpoint", ("full",), "none")),
    Lever("smaller batch", "activations, in proportion", "more, smaller steps",
          "activations hold one entry per sequence and token",
          "--batch N --accumulation M", _halve),
    Lever("8-bit optimizer states", "each moment, to 1 byte; a master copy stays", "some risk to stability",
          "Dettmers et al. 2022, https://arxiv.org/abs/2110.02861",
          "--optimizer adamw-8bit", _when("optimizer", ("adam", "adamw"), "adamw-8bit"),
          _on("optimizer", ("adamw-8bit",), "adamw")),
    Lever("bf16 optimizer states", "each moment, to 2 bytes; a master copy stays", "some risk to stability",
          "2 bytes instead of 4",
          "--state-dtype bf16", _when("state_dtype", ("auto", "fp32"), "bf16"),
          _on("state_dtype", ("bf16",), "auto")),
    Lever("optimizer offload", "optimizer state, to the host", "transfers, host memory",
          "Ren et al. 2021, https://arxiv.org/abs/2101.06840",
          "--offload optimizer", _when("offload", ("none",), "optimizer"),
          _on("offload", ("optimizer", "optimizer+weights"), "none")),
    Lever("offload with weights", "optimizer state and weights, to the host",
          "transfers, host memory", "Ren et al. 2021, https://arxiv.org/abs/2101.06840",
          "--offload optimizer+weights", _when("offload", ("none", "optimizer"), "optimizer+weights"),
          _on("offload", ("optimizer+weights",), "none")),
    Lever("LoRA", "gradients and optimizer state, to the adapters", "less capacity to change",
          "Hu et al. 2021, https://arxiv.org/abs/2106.09685",
          "--lora-rank R", _when("lora_rank", (0,), 16),
          lambda setup: {"lora_rank": 0} if setup.lora_rank and setup.run == "training" else {}, alone=True),
    Lever("sharding (FSDP)", "weights, gradients and optimizer state, over the GPUs", "traffic, more GPUs",
          "Zhao et al. 2023, https://arxiv.org/abs/2304.11277",
          "--shard fsdp2 --gpus N", _shard, alone=True),
)
"""In the order in which they are taken together: what costs least comes first."""

Measure = Callable[[Settings], tuple[int, bool]]
"""Settings of a run -> bytes in tensors, and whether the run fits."""


def try_levers(settings: Settings, measure: Measure) -> tuple[tuple[Change, ...], Change | None]:
    """Every lever on a run by itself, and the fewest that make it fit together (or all, where that is not enough)."""
    before, fits = measure(settings)
    tried = tuple(change for change in (_try(lever, settings, measure, before) for lever in LEVERS) if change)
    alone = {lever.name for lever in LEVERS if lever.alone}
    if fits or any(change.fits for change in tried if change.lever not in alone):
        return tried, None
    return tried, _together(settings, measure, before)


def _try(lever: Lever, settings: Settings, measure: Measure, before: int) -> Change | None:
    """One lever; None where it says nothing or is worth nothing here."""
    changed = lever.change(Setup.of(**settings))
    if not changed:
        return None
    try:
        after, fits = measure({**settings, **changed})
        if lever.change is _shard:
            while not fits and changed["gpus"] < 1024:
                wider = {**changed, "gpus": 2 * changed["gpus"]}
                after, fits = measure({**settings, **wider})
                changed = wider
    except PeakmemError as error:
        return Change(lever.name, flags(changed), before, 0, costs=lever.costs, refused=str(error))
    if after >= before:
        return None
    return Change(lever.name, flags(changed), before, after, fits, lever.costs)


def _together(settings: Settings, measure: Measure, before: int) -> Change | None:
    """Take levers in order until it fits, then drop those that were not needed."""
    taken: list[Settings] = []
    least = before
    fits = False
    # Twice: what another kind's peak hid at first may help after that one is lower.
    for lever in 2 * sorted(LEVERS, key=lambda lever: lever.alone):
        merged = _merged(settings, taken)
        changed = lever.change(Setup.of(**merged))
        try:
            after, fits = measure({**merged, **changed}) if changed else (least, False)
        except PeakmemError:
            continue
        if after < least:
            taken, least = [*taken, changed], after
        if fits:
            break
    if not fits:
        return None
    for part in list(taken):
        rest = [other for other in taken if other is not part]
        after, enough = measure(_merged(settings, rest))
        if enough:
            taken, least = rest, after
    made = _merged({}, taken)
    return Change("together", flags(made), before, least, True) if len(taken) > 1 else None


def _merged(settings: Settings, parts: list[Settings]) -> Settings:
    result = dict(settings)
    for part in parts:
        result |= part
    return result


def flags(changed: Settings) -> str:
    """Settings as the command line takes them."""
    return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in changed.items())


def measure_of(model: Model, gpu: str) -> Measure:
    """Asks the engine: bytes in tensors, and whether all of it fits."""
    from peakmem.estimate import estimate
    from peakmem.plan.headroom import headroom

    def measure(settings: Settings) -> tuple[int, bool]:
        # What the tensors alone exceed needs no simulation of the allocator.
        quick = estimate(model, **settings, allocator=False)
        fits = headroom(quick, gpu).fits and headroom(estimate(model, **settings), gpu).fits
        return quick.totals.tensors, fits

    return measure
