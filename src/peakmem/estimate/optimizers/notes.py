"""What a reader should know of how the step runs: one line each."""

from __future__ import annotations

from peakmem.setup import Setup
from peakmem.tables.optimizers import find_optimizer


def notes_on_step(setup: Setup, way: str) -> list[str]:
    """Wishes that change nothing, and what an optimizer's row says. way: the form that runs."""
    row = find_optimizer(setup.optimizer)
    notes = []
    wish = setup.optimizer_implementation
    if wish not in ("auto", way):
        why = "updates in one fused pass" if way == "fused" else f"has no {wish} form: it runs as {way}"
        notes.append(f"--optimizer-implementation {wish} changes nothing: {row.name} {why}")
    if setup.state_dtype != "auto" and not row.states:
        notes.append(f"--state-dtype {setup.state_dtype} changes nothing: {row.name} has no states")
    elif setup.state_dtype != "auto" and row.block:
        notes.append(f"--state-dtype {setup.state_dtype} changes nothing: {row.name} keeps codes and scales")
    if row.name == "adamw-8bit" and setup.shard == "fsdp2":
        notes.append("adamw-8bit: bitsandbytes' step (0.50.2) refuses the DTensors that fully_shard makes of "
                     "parameters; counted as if each GPU's were handed to it as plain tensors")
    if row.note and (row.name != "adamw" or way == "foreach"):
        notes.append(f"{row.name}: {row.note}")
    return notes
