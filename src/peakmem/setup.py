"""How it is trained or served: one row per setting.

The fields of `Setup` are the one field table of the product: name, unit, range, choices, help and default of
each row give the command line's flags, the JSON schema, the page's form and the texts of the errors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from peakmem.errors import Impossible, UnknownName, printable
from peakmem.immutable import field, fields, immutable

WEIGHTS = ("auto", "fp32", "bf16", "fp16", "nf4", "nf4-double", "fp4", "fp4-double", "int8", "fp8", "awq", "gptq",
           "mxfp4", "nvfp4")
LIMIT = 10**9  # no count in a setting is larger: keeps every product exact and every loop bounded


def setting(default: Any, help: str, *, unit: str = "", choices: tuple[str, ...] = (), least: float = 0,
            most: float = LIMIT, group: str = "common", many: bool = False, values: tuple[int, ...] = ()) -> Any:
    """One row of the field table. `many`: a list of words, or of numbers, separated by commas; `values`: the numbers
    that there are."""
    row = {"help": help, "unit": unit, "choices": choices, "least": least, "most": most, "group": group,
           "many": many, "values": values}
    return field(default=default, metadata=row)


@immutable
class Setup:
    """The settings of one run. `Setup.of(sequence=8192)` checks what it is given; the bare class does not."""

    run: str = setting("training", "what runs", choices=("training", "inference"))
    sequence: int = setting(2048, "tokens of one sequence (inference: of the prompt)", unit="tokens", least=1)
    target: int = setting(0, "tokens of the target, where a model has an encoder and a decoder; inference: those that "
                          "generation begins with; 0: as many as --sequence, in inference 1", unit="tokens",
                          group="activations")
    images: int = setting(-1, "pictures in each sequence, where a model reads text with pictures; -1: one in training, "
                          "none in inference", unit="pictures", group="activations", least=-1, most=1000)
    image_height: int = setting(448, "height of each picture, where a model takes pictures of any size; its processor "
                                "rounds it", unit="pixels", group="activations", least=1, most=10**5)
    image_width: int = setting(448, "width of each picture, where a model takes pictures of any size", unit="pixels",
                               group="activations", least=1, most=10**5)
    batch: int = setting(1, "sequences in one micro-batch, per GPU", unit="sequences", least=1)
    accumulation: int = setting(1, "micro-batches per optimizer step", unit="micro-batches", least=1)
    precision: str = setting("mixed", "which dtype weights, gradients and states have", choices=(
        "mixed", "amp-bf16", "amp-fp16", "bf16", "fp16", "fp32", "megatron"))
    optimizer: str = setting("adamw", "the optimizer: `peakmem list optimizers`")
    attention: str = setting("auto", "attention kernel; auto: what PyTorch picks",
                             choices=("auto", "flash", "efficient", "cudnn", "math", "eager", "flash-package"))
    implementation: str = setting("transformers", "whose code of the model runs",
                                  choices=("transformers", "paper", "torchtitan", "fused", "litgpt"))
    checkpoint: str = setting("none", "activation checkpointing: none, full (each layer keeps its input), "
                              "selective (keeps the outputs of --checkpoint-save)",
                              choices=("none", "full", "selective"))
    lora_rank: int = setting(0, "rank of LoRA adapters; 0: train all weights", least=0, most=10**6)
    shard: str = setting("none", "what is divided over the GPUs; ddp: nothing, gradients are averaged",
                         choices=("none", "ddp", "zero1", "zero2", "zero3", "fsdp2"))
    gpus: int = setting(1, "GPUs that share the states", unit="GPUs", least=1, most=10**6)
    gpu: str = setting("", "the GPU to compare with: `peakmem list gpus`")

    optimizer_implementation: str = setting("auto", "how PyTorch runs the optimizer; auto: its default",
                                            group="optimizer", choices=("auto", "foreach", "fused", "loop"))
    state_dtype: str = setting("auto", "dtype of the optimizer states; auto: the recipe's", group="optimizer",
                               choices=("auto", "fp32", "bf16", "fp16"))
    step: str = setting("steady", "which step: the first makes the optimizer states", group="optimizer",
                        choices=("steady", "first"))
    set_to_none: bool = setting(True, "zero_grad drops the gradients instead of zeroing them", group="optimizer")
    clip: bool = setting(False, "clip_grad_norm_ before the optimizer", group="optimizer")

    loss: str = setting("upcast", "upcast: logits in fp32, as transformers; chunked: head and loss by pieces; "
                        "fused: the head inside the loss; inplace: a kernel that writes the gradient over the logits; "
                        "pieces: LitGPT's, 128 tokens at a time; sum: logits.sum()", group="loss",
                        choices=("upcast", "chunked", "fused", "inplace", "pieces", "sum"))
    outputs: str = setting("dropped", "what the caller still holds of a step while the next runs its forward: its "
                           "logits, and keys and values", choices=("dropped", "logits", "logits+cache"), group="loss")
    stack: str = setting("current", "older code of the stack, by what it holds: tables/stacks.py", group="loss",
                         choices=("current", "bitsandbytes-0.42", "transformers-4.48", "transformers-4.46",
                                  "transformers-4.45", "foak-4.48", "foak-4.45", "transformers-4.42",
                                  "torchtitan-2024"))
    loss_chunks: int = setting(8, "pieces of the chunked loss", group="loss", least=1, most=4096)

    checkpoint_save: tuple[str, ...] = setting(("attention",), "operations whose outputs selective "
                                               "checkpointing keeps", group="activations", many=True)
    dropout: float = setting(-1.0, "dropout probability everywhere; -1: as the model says", group="activations",
                             least=-1, most=1)

    lora_targets: tuple[str, ...] = setting(("all-linear",), "modules that get adapters; "
                                            "all-linear: all but the head; default: peft's own choice",
                                            group="training part", many=True)
    lora_dropout: float = setting(-1.0, "dropout probability before each adapter; -1: the stack's default, peft's 0, "
                                  "LitGPT's 0.05", group="training part", least=-1, most=1)
    freeze: str = setting("", "what is not trained, as patterns on parameter names: embed_tokens,layers.*.mlp",
                          group="training part")
    frozen_layers: int = setting(0, "how many of the first layers are not trained", group="training part")

    reshard: str = setting("layers", "FSDP: what is sharded again after its forward; layers: torch's default; all: "
                           "the root unit too (an explicit reshard_after_forward=True, torchtune)", group="sharding",
                           choices=("layers", "all", "none"))
    sync_each_batch: bool = setting(True, "FSDP: gradients are reduced after every micro-batch", group="sharding")
    reduce_dtype: str = setting("auto", "FSDP: in which dtype gradients are added up; auto: fp32 under mixed, else "
                                "their own (accelerate: bf16)", group="sharding",
                                choices=("auto", "fp32", "bf16", "fp16"))
    reduce_bucket: int = setting(500_000_000, "ZeRO: elements of DeepSpeed's reduce_bucket_size", unit="elements",
                                 least=1, group="sharding", most=10**12)
    offload: str = setting("none", "what lies in the host's memory, or on disk", group="sharding",
                           choices=("none", "optimizer", "optimizer+weights", "disk-optimizer",
                                    "disk-optimizer+weights"))

    weights: str = setting("auto", "how linear weights are stored; auto: as the file says, else by --precision",
                           choices=WEIGHTS, group="quantised weights")
    kbit_prepare: str = setting("no", "prepare_model_for_kbit_training: what is not packed becomes fp32; trl: "
                                "embeddings and head are 16-bit again, as TRL up to 0.19 does it under bf16",
                                choices=("no", "yes", "trl"), group="quantised weights")

    logits: str = setting("last", "of which prompt positions logits are made", group="inference",
                          choices=("last", "all"))
    kv_cache: str = setting("concatenated", "where keys and values lie: a tensor that grows by concatenation, a buffer "
                            "for all tokens, or blocks", choices=("concatenated", "static", "paged"), group="inference")
    kv_bits: int = setting(16, "bits of a cached value: 16, 8 or 4", group="inference", least=4, most=16,
                           values=(16, 8, 4))
    block_size: int = setting(16, "tokens of a block of the paged cache", unit="tokens", group="inference", least=1,
                              most=10**6)
    utilization: float = setting(0.9, "share of the GPU that a server takes", group="inference", least=0.01, most=1)
    beams: int = setting(1, "beams of each sequence", group="inference", least=1, most=10**6)
    prefill_chunk: int = setting(0, "tokens of the prompt that run at a time; 0: all", unit="tokens", group="inference")
    tensor_parallel: int = setting(1, "GPUs over which heads are divided in inference", unit="GPUs", least=1,
                                   most=10**6, group="inference")
    generate: int = setting(256, "tokens that are generated after the prompt", unit="tokens", group="inference",
                            least=1)

    @staticmethod
    def of(**given: Any) -> Setup:
        """Settings checked against the field table.

        Errors: UnknownName for a setting or choice that is not there, Impossible for a value out of range.
        """
        return Setup(**{name: checked(name, value) for name, value in given.items()})

    def as_json(self) -> dict[str, Any]:
        """Every setting by name, as JSON has it."""
        return {name: list(value) if isinstance(value := getattr(self, name), tuple) else value
                for name in fields(self)}


FIELDS: Mapping[str, Mapping[str, Any]] = {
    name: {**row.metadata, "default": row.default, "type": type(row.default)} for name, row in fields(Setup).items()
}


def checked(name: str, value: Any) -> Any:
    """A value for a row of the field table, in the row's type.

    Text is taken as the command line writes it; a bool is no number, and no number is rounded.
    Errors: UnknownName, Impossible: what was given, what is allowed.
    """
    row = FIELDS.get(name)
    if row is None:
        raise UnknownName("setting", name, FIELDS, "peakmem estimate --help")
    flag, kind = "--" + name.replace("_", "-"), row["type"]
    if row["many"]:
        words = value.split(",") if isinstance(value, str) else value
        if not isinstance(words, (list, tuple)) or not all(isinstance(w, str) and w.strip() for w in words):
            raise Impossible(f"{flag} {printable(value)}: give words separated by commas")
        return tuple(w.strip() for w in words)
    if kind is bool:
        truth = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False,
                 "0": False}
        if isinstance(value, str) and value.lower() in truth:
            return truth[value.lower()]
        if isinstance(value, bool):
            return value
        raise Impossible(f"{flag} {printable(value)}: give yes or no")
    if kind is str:
        if isinstance(value, bool) and {"yes", "no"} <= set(row["choices"]):
            return "yes" if value else "no"
        if not isinstance(value, str):
            raise Impossible(f"{flag} {printable(value)}: give a word")
        if row["choices"] and value not in row["choices"]:
            raise UnknownName(f"value for {flag}", value, row["choices"])
        return value
    least, most = (-LIMIT, LIMIT) if row["values"] else (row["least"], row["most"])
    given = number(flag, value, kind, least, most, row["unit"])
    if row["values"] and given not in row["values"]:
        *others, last = map(str, row["values"])
        raise Impossible(f"{flag} {printable(value)}: give {', '.join(others)} or {last}")
    if name == "dropout" and -1 < given < 0:
        raise Impossible(f"{flag} {printable(value)}: give a probability from 0 to 1, or -1 for the model's own")
    return given


WHOLE = re.compile(r"[+-]?([0-9]+|[0-9]{1,3}(_[0-9]{3})+)")
DECIMAL = re.compile(WHOLE.pattern + r"(\.[0-9]*)?([eE][+-]?[0-9]+)?|[+-]?\.[0-9]+([eE][+-]?[0-9]+)?")
"""Numbers as people write them; int() takes 1_0 and the digits of every script, too."""


def number(flag: str, value: Any, kind: type, least: float, most: float, unit: str = "") -> Any:
    """An int or float inside its range; text is parsed, anything else is refused."""
    wanted = "a whole number" if kind is int else "a number"
    shown = [f"{int(end):,}" if float(end).is_integer() else f"{end:g}" for end in (least, most)]
    limits = f"{flag} takes {wanted} from {shown[0]} to {shown[1]}" + (f" ({unit})" if unit else "")
    if isinstance(value, str):
        text = value.strip()
        if len(text) > 30:
            raise Impossible(f"{flag} {printable(value, 40)} is too long; {limits}")
        if not (WHOLE if kind is int else DECIMAL).fullmatch(text):
            raise Impossible(f"{flag} {printable(value)} is not {wanted}; {limits}")
        value = int(text) if kind is int else float(text)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise Impossible(f"{flag} {printable(value)} is not {wanted}; {limits}")
    if kind is int and isinstance(value, float):
        if not value.is_integer():
            raise Impossible(f"{flag} {value!r} is not a whole number; {limits}")
        value = int(value)
    if not least <= value <= most:
        raise Impossible(f"{flag} {printable(value)} is out of range; {limits}")
    return value
