"""The estimate: one structure is interpreted once, numbers are put in as often as wanted."""

from __future__ import annotations

from functools import lru_cache
from os.path import isdir
from typing import TYPE_CHECKING, Any

from peakmem.estimate.balance import booked
from peakmem.estimate.dividing import notes_on
from peakmem.estimate.elsewhere import bytes_at
from peakmem.estimate.idle import input_of, notes_on_idle
from peakmem.estimate.interpret import interpret
from peakmem.estimate.replay import Level, Program, compiled, replay, value
from peakmem.estimate.serving import generates, notes_on_serving
from peakmem.estimate.settings import structure_of, way_of_step
from peakmem.estimate.stored import notes_on_weights
from peakmem.estimate.structure import Structure
from peakmem.immutable import replace
from peakmem.ledger import Detail, Ledger, Outline, Parameters, Totals
from peakmem.model import Model
from peakmem.setup import Setup
from peakmem.tables.resize import SIZES, resize
from peakmem.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MIRRORS = {"torch": "2.13.0", "transformers": "5.24.0", "peft": "0.21.2"}


def estimate(model: str | Path | Model, setup: Setup | None = None, *, allocator: bool | None = None,
             **settings: Any) -> Ledger:
    """The memory of one training step, or of one generation, to the byte.

    model: a preset's name, a path to a config.json or a folder with one, or a Model. settings: rows of the field
    table, by name, or `setup` with all of them; and sizes of the model (tables/resize.py). allocator: whether
    PyTorch's allocator is run for the allocated, reserved and device totals; None: where a GPU is named.
    Errors: PeakmemError, in one line: unknown names, values out of range, settings that exclude each other.
    """
    found = model if isinstance(model, Model) else named(model)
    sizes = {name: settings.pop(name) for name in tuple(settings) if name in (*SIZES, "tied")}
    if sizes:
        found = resize(found, **sizes)
    usual = notes_on_sequence(found, settings) if setup is None else ()
    if setup is None:
        setup = Setup.of(**{"sequence": usual_sequence(found, settings)} | settings)
    structure, numbers = structure_of(found, setup)
    levels = replay(program_of(structure), numbers)
    totals = Totals(max(level.peak for level in levels.values()))
    if setup.gpu and allocator is not False:
        from peakmem.estimate.reserved import totals_of

        totals = totals_of(structure, numbers, found.layers, setup.gpu, totals.tensors)
    tape = interpret(structure)
    if tape.elsewhere:
        totals = replace(totals, host=bytes_at(tape, numbers, "host"), disk=bytes_at(tape, numbers, "disk"))
    parameters = parameters_of(structure, numbers)
    return Ledger(
        origin="estimate",
        run=run_of(found, setup),
        notes=(*notes_of(found, setup), *notes_on_weights(structure, found, numbers),
               *notes_on_serving(structure, numbers, setup, levels), *notes_on_file(found, setup, parameters),
               *usual),
        totals=totals,
        phases=phases_of(levels),
        parameters=parameters,
        walk=lambda: walked(booked(structure, numbers), numbers, found, setup.gpu),
        unroll=lambda: over_time(booked(structure, numbers), numbers, found),
        draw=lambda: outlined(booked(structure, numbers), numbers, found),
    )


def usual_sequence(model: Model, settings: dict[str, Any]) -> int:
    """The sequence where none is given: the field table's, or as much of it as the model has positions for."""
    usual: int = Setup.sequence
    later = int(settings.get("generate", Setup.generate)) if settings.get("run") == "inference" else 0
    later *= generates(model, Setup())
    usual = model.sizes.get("words", usual)
    bounded = model.longest and (model.vocabulary or not model.image)
    return max(min(usual, model.longest - later), 1) if bounded else usual


def notes_on_sequence(model: Model, settings: dict[str, Any]) -> tuple[str, ...]:
    """That a model has fewer positions than the sequence that is usual, where none is given."""
    taken = usual_sequence(model, settings)
    if "sequence" in settings or "words" in model.sizes or taken >= Setup.sequence:
        return ()
    shared = ", for what is generated, too" if settings.get("run") == "inference" and generates(model, Setup()) else ""
    return (f"--sequence is {taken:,} where none is given, not {Setup.sequence:,}: {model.name} has "
            f"{model.longest:,} positions{shared}",)


def named(model: str | Path) -> Model:
    """A preset, `custom`, or what lies at a path."""
    from peakmem.tables.models import custom, find_model

    text = str(model)
    if text == "custom":
        return custom()
    return Model.read(model) if "/" in text or text.endswith(".json") or isdir(text) else find_model(text)


@lru_cache(maxsize=256)
def program_of(structure: Structure) -> Program:
    """The compiled tape of a structure."""
    return compiled(interpret(structure))


def walked(structure: Structure, numbers: dict[str, Any], model: Model, gpu: str) -> Detail:
    from peakmem.architectures import code_of
    from peakmem.estimate.account import detail_of
    from peakmem.estimate.reserved import lines_outside

    source = code_of(structure.architecture, structure.implementation).MIRRORS
    detail = detail_of(interpret(structure), numbers, layers_that_run(structure, numbers, model), source)
    return replace(detail, lines=detail.lines + lines_outside(structure, gpu))


def outlined(structure: Structure, numbers: dict[str, Any], model: Model) -> Outline:
    from peakmem.estimate.account import walk_of

    return walk_of(interpret(structure), numbers, layers_that_run(structure, numbers, model))[1]


def over_time(structure: Structure, numbers: dict[str, Any], model: Model) -> tuple[tuple[str, dict[str, int]], ...]:
    """Live bytes by kind after every event."""
    from peakmem.estimate.unrolled import timeline_of

    return timeline_of(interpret(structure), numbers, layers_that_run(structure, numbers, model))


def layers_that_run(structure: Structure, numbers: dict[str, Any], model: Model) -> int:
    """Of how many layers the chart's moments are thirds: a tower that only stands by has no part in them."""
    ran = interpret(structure).ran.values()
    return sum(len(stretch.kinds) * int(value(stretch.letter, numbers)) for stretch in ran) or model.layers


def phases_of(levels: dict[str, Level]) -> dict[str, int]:
    """The totals of the phases; of several micro-batches, peaks over all, ends of the last."""
    if "load" in levels:
        decode = [level.peak for name, level in levels.items() if name.endswith("decode")]
        return {"load": levels["load"].end, "prefill_peak": levels["prefill"].peak,
                "decode_peak": max(decode, default=levels["prefill"].end)}
    forward = [level for name, level in levels.items() if name.startswith("forward")]
    backward = [level for name, level in levels.items() if name.startswith("backward")]
    return {
        "step_start": levels["start"].end,
        "after_forward": forward[-1].end,
        "forward_peak": max(level.peak for level in forward),
        "after_backward": backward[-1].end,
        "backward_peak": max(level.peak for level in backward),
        **({"clip_peak": levels["optimizer.clip"].peak} if "optimizer.clip" in levels else {}),
        "optimizer_peak": levels["optimizer"].peak,
        "step_end": levels["clear"].end,
    }


def parameters_of(structure: Structure, numbers: dict[str, Any]) -> Parameters:
    """Counts of unique parameters; of the weights of experts, a token meets K of E."""
    from peakmem.estimate.replay import value

    total = trained = active = 0
    for p in interpret(structure).parameters.values():
        count = 1
        for group in p.dims:
            for letter in group:
                letter = letter.rstrip("'")
                count *= numbers[letter] if letter in numbers else value(letter, numbers)
        count *= value(p.fold, numbers) if p.fold else 1
        total += count
        met = any(letter == "E" for group in p.dims for letter in group) and (len(p.dims) > 2 or p.module == "expert")
        active += count * numbers["K"] // numbers["E"] if met else count
        trained += count if p.trained else 0
    return Parameters(total, trained, active)


def run_of(model: Model, setup: Setup) -> dict[str, Any]:
    """What was estimated, with what."""
    hidden = "notes", "sizes", "towers", "in_file"
    dimensions = {name: value for name, value in vars(model).items() if name not in hidden}
    dimensions = {name: sorted(value) if isinstance(value, frozenset) else value for name, value in dimensions.items()}
    read = input_of(model, setup)
    return {"peakmem": __version__, "mirrors": dict(MIRRORS), "model": dimensions, **setup.as_json(),
            **({"input": read} if read else {})}


def notes_on_file(model: Model, setup: Setup, counted: Parameters) -> Iterator[str]:
    """Where the weights beside a configuration are not as many as it describes: one of the two is of another model."""
    more = model.in_file - counted.total
    if model.in_file and more and not setup.lora_rank and setup.tensor_parallel == 1:
        yield (f"the configuration describes {counted.total:,} parameters, {abs(more):,} "
               f"{'fewer' if more > 0 else 'more'} than the file's weights: is it this model's? Counted as it says")


def notes_of(model: Model, setup: Setup) -> tuple[str, ...]:
    """What was assumed."""
    from peakmem.architectures import code_of
    from peakmem.estimate.losses import LOSS_NOTES
    from peakmem.estimate.optimizers.notes import notes_on_step
    from peakmem.tables.precisions import PRECISIONS

    recipe = PRECISIONS[setup.precision]
    notes = [*model.notes]
    unknown = getattr(code_of(model.architecture, setup.implementation), "UNKNOWN", "")
    if unknown:
        notes.append(f"weights, caches and states alone: {unknown}")
    # fsdp2's own note says what it makes of the recipe
    if recipe.note and setup.run == "training" and not (setup.shard == "fsdp2" and recipe.master):
        notes.append(f"{recipe.name}: {recipe.note}")
    if setup.run == "training":
        notes += notes_on_step(setup, way_of_step(setup))
        notes += LOSS_NOTES.get(setup.loss, ())
    return (*notes, *notes_on(setup, recipe), *notes_on_idle(model, setup))
