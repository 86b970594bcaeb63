"""From a structure to a tape: parameters, states, forward, backward, optimizer, clearing."""

from __future__ import annotations

from fnmatch import fnmatch
from functools import lru_cache
from types import ModuleType

from peakmem.estimate import optimizers
from peakmem.estimate.autograd import Node, backward
from peakmem.estimate.inference import generation
from peakmem.estimate.layout import FLOATS, dims
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Parameter, Tape, Tensor, writing


@lru_cache(maxsize=256)
def interpret(m: Structure) -> Tape:
    """Everything one training step allocates and frees, in order. Made once for each structure."""
    from peakmem.architectures import code_of

    code = code_of(m.architecture, m.implementation)
    tape = Tape(m.ones)
    tape.trains_inputs = bool(m.lora) and m.checkpoint != "none"
    with writing(tape):
        tape.phase("start" if m.run == "training" else "load")
        buffers = define(tape, m, code)
        inputs = make_inputs(tape, m, code)
        if m.run == "inference":
            generation(tape, m, code, inputs)
            tape.finish()
            return tape
        if m.step == "steady":
            optimizers.make_states(tape, m)
        for j in range(m.micro_batches):
            suffix = f".{j}" if m.micro_batches > 1 else ""
            tape.phase(f"forward{suffix}")
            loss = forward(tape, m, code, inputs)
            if m.micro_batches > 1:
                n = Node("scale", loss)
                loss = n.output(n.makes((), loss.dtype, None, "loss, divided"))
                n.gradient(0)
                del n
            tape.phase(f"backward{suffix}")
            backward(tape, loss)
            del loss
        tape.phase("optimizer")
        optimizers.step(tape, m)
        tape.phase("clear")
        optimizers.clear(tape, m)
        tape.phase("end")
        tape.finish()
        del buffers, inputs
    return tape


def define(tape: Tape, m: Structure, code: ModuleType) -> list[Tensor]:
    """Make every parameter and buffer, in order of definition; returns the buffers."""
    from peakmem.architectures.definition import Layers

    tape.kind = "weights"
    buffers: list[Tensor] = []
    for row in code.define(m):
        if not isinstance(row, Layers):
            make_row(tape, m, row, "", "", buffers)
            continue
        for layer, kind, count in m.copies():
            with tape.repeated(count):
                for inner in row.block(kind):
                    make_row(tape, m, inner._replace(name=f"{row.name}.*.{inner.name}"), layer, count, buffers)
    tape.kind = "temporary"
    return buffers


def make_row(tape: Tape, m: Structure, row, layer: str, fold: str, buffers: list[Tensor]) -> None:
    shape = dims(row.shape)
    if row.module == "buffer":
        buffers.append(tape.new(shape, row.dtype or m.dtype, None, row.name))
        return
    base, _, leaf = row.name.rpartition(".")
    adapter = row.module in ("linear", "conv1d") and any(target(base, pattern) for pattern in m.lora)
    name = f"{base}.base_layer.{leaf}" if adapter else row.name
    trained = row.module == "adapter" or row.module != "unused" and not m.lora and not any(fnmatch(row.name, f"*{pattern}*") for pattern in m.frozen)
    add_parameter(tape, layer, name, row.shape, row.dtype or m.dtype, trained, fold)
    last_of_module = leaf == "bias" or leaf == "weight"
    if adapter and last_of_module and leaf == "weight":
        outputs, inputs = (shape[1], shape[0]) if row.module == "conv1d" else (shape[0], shape[1])
        pending = (f"{base}.lora_A.default.weight", (("r",), inputs)), (f"{base}.lora_B.default.weight", (outputs, ("r",)))
        for full, pair in pending:
            add_parameter(tape, layer, full, pair, "fp32", True, fold)


def target(module: str, pattern: str) -> bool:
    """Whether a module gets an adapter: `all-linear` means all but the output embeddings, as peft has it.

    A classifier is none of those (peft/tuners/tuners_utils.py, _maybe_include_all_linear_layers).
    """
    if pattern == "all-linear":
        return not module.endswith(("lm_head", "embed_out", "decoder"))
    return module == pattern or module.endswith(f".{pattern}")


def add_parameter(tape: Tape, layer: str, name: str, shape, dtype: str, trained: bool, fold: str) -> None:
    groups = dims(shape) if isinstance(shape, str) else shape
    made = tape.new(groups, dtype, None, name)
    tape.parameters[layer + name] = Parameter(groups, dtype, made.storage, name, trained and dtype in FLOATS, fold)


def make_inputs(tape: Tape, m: Structure, code: ModuleType) -> dict[str, Tensor]:
    """The batch, on the device all the time: tokens, or what the architecture says in INPUTS."""
    wanted = getattr(code, "INPUTS", {"input_ids": ("b s", "int64"), "labels": ("b s", "int64")})
    return {name: tape.new(dims(shape), dtype or m.dtype, None, f"input/{name}")
            for name, (shape, dtype) in wanted.items()
            if not (name == "labels" and (m.loss == "sum" or m.run == "inference"))}


def forward(tape: Tape, m: Structure, code: ModuleType, inputs: dict[str, Tensor]) -> Tensor:
    """The forward pass; under autocast the cached weight copies go when its context ends."""
    tape.autocast = m.autocast
    loss = code.forward(m, **inputs) if hasattr(code, "INPUTS") else code.forward(m, inputs["input_ids"])
    tape.autocast = ""
    copies = [copy for _, copy in tape.casts.values()]
    tape.casts.clear()
    optimizers.free_folded(tape, copies)
    return loss
