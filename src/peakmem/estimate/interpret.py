"""From a structure to a tape: parameters, states, forward, backward, optimizer, clearing."""

from __future__ import annotations

from functools import lru_cache
from types import ModuleType

from peakmem.estimate import optimizers
from peakmem.estimate.autograd import backward
from peakmem.estimate.inference import as_encoded, generation
from peakmem.estimate.layout import dims
from peakmem.estimate.node import Node
from peakmem.estimate.ops import floats_cast
from peakmem.estimate.outputs import Held
from peakmem.estimate.parameters import define
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tape, Tensor, writing
from peakmem.estimate.ways import divided


@lru_cache(maxsize=256)
def interpret(m: Structure) -> Tape:
    """Everything one training step allocates and frees, in order. Made once for each structure."""
    from peakmem.architectures import code_of

    code = code_of(m.architecture, m.implementation)
    tape = Tape(m.ones)
    tape.parts = parts = divided(tape, m)
    tape.trains_inputs = m.checkpoint != "none" and m.implementation == "transformers" \
        and main_input(code) == "input_ids"
    tape.keeps_packed_inputs = m.has("packed_inputs_kept")
    tape.dequantises_always = m.has("always_dequantised")
    tape.adapter_drops, tape.fused_kernels = m.drops("adapter"), m.has("fused_kernels")
    with writing(tape):
        tape.phase("start" if m.run == "training" else "load")
        buffers = define(tape, m, code)
        inputs = make_inputs(tape, m, code)
        if m.run == "inference":
            generation(tape, m, code, inputs)
            leave_autocast(tape)
            tape.finish()
            return tape
        training = optimizers.Training(tape, m)
        with parts.optimizer_place():
            training.begin()
        held = Held(tape, m)
        for j in range(m.micro_batches):
            suffix = f".{j}" if m.micro_batches > 1 else ""
            tape.phase(f"forward{suffix}")
            parts.begin(j)
            held.before()
            loss = forward(tape, m, code, inputs)
            held.after()
            held.loss_there()
            if m.micro_batches > 1:
                n = Node("scale", loss)
                loss = n.output(n.makes((), loss.dtype, None, "loss, divided"))
                n.gradient(0)
                del n
            if loss.record:
                loss.record.loss = True
            tape.phase(f"backward{suffix}")
            backward(tape, loss, [parts.after_backward])
            del loss
            held.backward_done()
        if m.clip:
            tape.phase("optimizer.clip")
            training.clip()
        tape.phase("optimizer")
        parts.before_step()
        with parts.optimizer_place():
            training.step()
        parts.after_step()
        tape.phase("clear")
        training.clear()
        tape.phase("end")
        tape.finish()
        del buffers, inputs, training, held
    return tape


def main_input(code: ModuleType) -> str:
    """The input that the model's class calls its main one; only models of tokens let their embeddings want gradients.

    Source: transformers' modeling_utils.py, gradient_checkpointing_enable.
    """
    return str(next(iter(getattr(code, "INPUTS", ("input_ids",)))))


def make_inputs(tape: Tape, m: Structure, code: ModuleType) -> dict[str, Tensor]:
    """The batch, on the device all the time: tokens, or what the architecture says in INPUTS.

    There each has a shape, a dtype, and the switch that it goes with, if any.
    """
    wanted = dict(getattr(code, "INPUTS", {"input_ids": ("b s", "int64"), "labels": ("b s", "int64")}))
    labels = wanted.pop("labels", None)
    with as_encoded(m):
        made = {name: tape.new(dims(shape), dtype or m.shard_dtype or m.dtype, None, f"input/{name}")
                for name, (shape, dtype, *switch) in wanted.items() if m.switches.issuperset(switch)}
    if labels and m.run == "inference" and m.has("encoder_decoder"):
        made["decoder_input_ids"] = tape.new(dims(labels[0]), "int64", None, "input/decoder_input_ids")
    elif labels and m.run == "training" and m.loss != "sum":
        made["labels"] = tape.new(dims(labels[0]), labels[1] or m.dtype, None, "input/labels")
    return made


def forward(tape: Tape, m: Structure, code: ModuleType, inputs: dict[str, Tensor]) -> Tensor:
    """The forward pass; under autocast the cached weight copies go when its context ends."""
    tape.autocast = m.autocast
    # FSDP2's policy casts what the model is called with, before its root unit is gathered (cast_forward_inputs).
    given = {name: floats_cast(x, m.shard_dtype and m.dtype) for name, x in inputs.items()}
    loss: Tensor = tape.parts.model(lambda: code.forward(m, **given) if hasattr(code, "INPUTS")
                            else code.forward(m, given["input_ids"]))
    given.clear()
    leave_autocast(tape)
    return loss


def leave_autocast(tape: Tape) -> None:
    """Its context ends: the cached copies go."""
    tape.autocast = ""
    copies = [x for pair in tape.casts.values() for x in pair]
    tape.casts.clear()
    optimizers.free_folded(tape, copies)
