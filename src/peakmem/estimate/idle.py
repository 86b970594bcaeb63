"""Settings that change nothing, and why: said where they were given, so that nobody believes they were counted."""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.estimate.serving import generates, keeps_tokens
from peakmem.model import Model
from peakmem.quantity import counted
from peakmem.setup import FIELDS, Setup
from peakmem.tables.pictures import images_of

TRAINS = ("optimizer", "loss", "activations", "training part")
TRAINS_TOO = ("accumulation", "optimizer", "checkpoint")
SERVES_TOO = ("stack", "lora_targets", "target", "images", "image_height", "image_width")  # of these groups
SHARDS = ("reshard", "sync_each_batch", "reduce_dtype")
SERVES = ("beams", "prefill_chunk", "kv_cache", "kv_bits", "generate", "logits", "block_size", "utilization")


def input_of(model: Model, setup: Setup) -> str:
    """What a model reads instead of tokens alone, whose number is a setting; empty: it reads those."""
    if "latents" in model.switches:
        text = f", {counted(setup.sequence, 'token')} of text" if "words" in model.sizes else ""
        return f"{model.image:,} × {model.image:,} latents{text}"
    if model.image and not model.vocabulary:
        return f"{model.image:,} × {model.image:,} pixels"
    if "mel" in model.sizes:
        return f"{counted(model.sizes['s'], 'position')} of sound"
    return ""


def idle_settings(model: Model, setup: Setup) -> dict[str, str]:
    """The settings that would change nothing in this run, each with its reason: `in training`, `without --shard`."""
    found: dict[str, str] = {}
    for reason, names in reasons(model, setup):
        for name in names:
            found.setdefault(name, reason)
    return found


def reasons(model: Model, setup: Setup) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Why, and which; what comes first is said of a setting that has several reasons."""
    groups = {group: tuple(name for name in FIELDS if FIELDS[name]["group"] == group)
              for group in (*TRAINS, "inference")}
    if setup.run == "inference":
        yield "in inference", (*TRAINS_TOO, *(name for group in TRAINS for name in groups[group]
                                              if name not in SERVES_TOO))
    else:
        yield "in training", groups["inference"]
        if setup.checkpoint != "selective":
            yield "without --checkpoint selective", ("checkpoint_save",)
        if setup.loss != "chunked":
            yield "without --loss chunked", ("loss_chunks",)
    if not setup.lora_rank:
        yield "without --lora-rank", ("lora_targets", "lora_dropout")
    if "encoder_decoder" not in model.switches:
        yield "in a model without encoder and decoder", ("target",)
    if "sees" not in model.switches:
        yield "in a model that sees no pictures between its tokens", ("images", "image_height", "image_width")
    elif "any_size" not in model.switches:
        yield f"in a model whose pictures are {model.image:,} × {model.image:,} pixels", ("image_height", "image_width")
    elif not images_of(model, setup):
        yield "without --images", ("image_height", "image_width")
    if input_of(model, setup) and "words" not in model.sizes:
        yield f"in a model that reads {input_of(model, setup)}", ("sequence",)
    if not generates(model, setup):
        yield "in a model that generates nothing", SERVES
    if not keeps_tokens(model):
        yield "in a model without keys and values of every token", ("kv_bits", "block_size",
                                                                    *(() if model.experts else ("kv_cache",)))
    if not setup.gpu:
        yield "without --gpu", ("utilization",)
        if setup.kv_cache != "paged":
            yield "without --kv-cache paged or --gpu", ("block_size",)
    if setup.shard != "fsdp2":
        yield "without --shard fsdp2", SHARDS
    if not setup.shard.startswith("zero"):
        yield "without --shard zero1, zero2 or zero3", ("reduce_bucket",)


def notes_on_idle(model: Model, setup: Setup) -> Iterator[str]:
    """One sentence for each reason, with the settings that were given and had no effect."""
    given: dict[str, list[str]] = {}
    idle = idle_settings(model, setup)
    for name in FIELDS:
        if name in idle and getattr(setup, name) != FIELDS[name]["default"]:
            given.setdefault(idle[name], []).append("--" + name.replace("_", "-"))
    for reason, names in given.items():
        yield f"no effect {reason}: {', '.join(names)}"
    if setup.gpus > 1 and setup.shard == "none" and setup.run == "training":
        yield (f"--gpus {setup.gpus} without --shard: every GPU holds what one GPU holds; the buckets of "
               "DistributedDataParallel, as large as all gradients, are counted with --shard ddp")
