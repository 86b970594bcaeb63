"""Tracing a transformers model by its configuration and the settings of the field table."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

from peakmem.ledger import Ledger, Parameters
from peakmem.ledger_json import from_json
from peakmem.model import Model
from peakmem.setup import Setup
from peakmem.version import __version__

from .process import in_process, report
from .settings import profile, setting_of

NOTE = "traced: the classes of transformers {transformers} and torch {torch} ran on a fake GPU ({gpu})"


def trace_model(
    config: Mapping[str, Any],
    model: Model,
    setup: Setup,
    timeout: float = 0,
    progress: Callable[[str], None] | None = None,
) -> Ledger:
    """Return the ledger of one training step of the model that `config` describes, traced in a process of its own.

    Raises `Impossible` for settings that a trace cannot do, `TraceError` if that process dies or takes longer than
    `timeout` seconds, and what torch or transformers raise.
    """
    setting = setting_of(config, model, setup)
    dimensions = {name: value for name, value in vars(model).items() if name not in ("notes", "sizes", "towers")}
    plain = {name: sorted(value) if isinstance(value, frozenset) else value for name, value in dimensions.items()}
    run = {"peakmem": __version__, "model": plain, **setup.as_json()}
    return from_json(in_process(as_json, setting, run, model.notes, timeout=timeout, progress=progress))


def as_json(setting: Mapping[str, Any], run: Mapping[str, Any], notes: tuple[str, ...]) -> dict[str, Any]:
    """Trace one setting here; return its ledger as JSON has it. `run`: what the ledger says of the run."""
    report("loading torch and transformers")
    import torch
    import transformers

    from . import record, sharded
    from .ledger import ledger_of

    quiet: Any = transformers.logging.set_verbosity_error
    quiet()
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")  # peft calls its older names
    gpu = profile(run.get("gpu", ""))
    report("building the model on the meta device")
    if setting.get("shard"):
        tracer, (total, trained), calls = sharded.traced(setting, record.model_of(setting), gpu)
    else:
        tracer, model, calls = record.traced(setting, gpu)
        total, trained = record.parameter_counts(model)
    report("reading the events")
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    told = {"peakmem": run.get("peakmem", __version__), "mirrors": versions, "attention_kernels": calls, **run}
    notes = (NOTE.format(**versions, gpu=gpu.name), *kernels(calls), *notes)
    # Which experts a token meets is not in a trace.
    parameters = Parameters(total, trained, total)
    return ledger_of(tracer, told, parameters, notes, run.get("gpu", "")).as_json(timeline=True)


def kernels(calls: Mapping[str, int]) -> tuple[str, ...]:
    """Return the note on which attention kernels were chosen."""
    if not calls:
        return ()
    each = ", ".join(f"{name} {count} times" for name, count in sorted(calls.items()))
    return (f"attention kernels that this GPU takes: {each} in one step",)
