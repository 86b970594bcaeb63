"""Which attention kernel runs in each kind of layer: what PyTorch would pick, or what is asked for. Which dropouts."""

from __future__ import annotations

from functools import lru_cache

from peakmem.errors import Impossible
from peakmem.model import Model
from peakmem.setup import Setup
from peakmem.tables.kernels import GPU, Attention, choose
from peakmem.tables.precisions import PRECISIONS

TORCH = (2, 13)
CUDNN = 92000  # of torch 2.13's default wheels: newer than 9.15, so preferred where the GPU is Hopper or Blackwell
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}


@lru_cache(maxsize=256)
def device_of(name: str) -> GPU:
    """The device behind a name in --gpu; without one, or for one without a capability, an sm80 profile."""
    if name:
        from peakmem.tables.gpus import find_gpu

        major, dot, minor = find_gpu(name).capability.partition(".")
        if dot and major.isdigit() and minor.isdigit():
            return GPU(name, (int(major), int(minor)), CUDNN)
    return GPU()


def kernels_of(model: Model, setup: Setup, narrow: bool) -> tuple[tuple[str, str], ...]:
    """The kernel of each kind of attention.

    Where scores get a trained bias, that between two sequences is zero, and wants a gradient under checkpointing only.
    """
    masked = "masked" in model.switches
    biased = "position_bias" in model.switches and setup.run == "training"
    full = kernel_of(of_full_layers(model), setup, masked, biased)
    cross = kernel_of(model, setup, masked, biased and setup.checkpoint != "none")
    sliding = kernel_of(model, setup, narrow or masked)
    still = (("frozen bias", kernel_of(model, setup, masked)),) if "position_bias" in model.switches else ()
    return ("full", full), ("sliding", sliding), ("cross", cross), *still, *kernels_of_steps(model, setup, masked)


def kernels_of_steps(model: Model, setup: Setup, masked: bool) -> tuple[tuple[str, str], ...]:
    """Of layers with a window while one token is decoded: it may hide tokens that it did not hide in the prompt."""
    from peakmem.estimate.serving import cached_tokens

    if setup.run != "inference" or not model.window:
        return ()
    tokens = cached_tokens(model, setup)
    return tuple((f"sliding {step}", kernel_of(model, setup, masked or tokens[f"t{step}"] >= model.window))
                 for step in "12")


def of_full_layers(model: Model) -> Model:
    """The same model with the heads of its full layers, where they have others: `dg`, `kg`."""
    if "dg" not in model.sizes:
        return model
    return model.changed(head_size=model.sizes["dg"], kv_heads=model.sizes["kg"])


def kernel_of(model: Model, setup: Setup, masked: bool, trained: bool = False) -> str:
    """The kernel of a layer with a mask or without. The paper's block has its scores unless asked otherwise.

    transformers repeats key/value heads itself where there is a mask or a head is wider than 256, and asks for
    grouped heads else (integrations/sdpa_attention.py). trained: the mask wants a gradient.

    Errors: Impossible: the kernel that is asked for refuses.
    """
    if setup.implementation == "paper":
        return "eager" if setup.attention in ("auto", "math") else setup.attention
    if "eager_only" in model.switches:
        if setup.attention in ("auto", "eager"):
            return "eager"
        raise Impossible(f"--attention {setup.attention}: transformers runs {model.architecture} with eager attention "
                         "only; give auto or eager")
    if setup.attention in ("eager", "math"):
        return setup.attention
    recipe = PRECISIONS[setup.precision]
    spread = setup.implementation == "litgpt"  # it copies keys and values for every query itself
    grouped = not spread and model.kv_heads < model.heads and not masked and model.head_size <= 256
    broadcast = "broadcast_heads" in model.switches and not spread
    stream = setup.weights if setup.weights in DTYPES else recipe.weights
    dtype = DTYPES[recipe.autocast or (stream if setup.kbit_prepare == "no" else "fp32")]
    if setup.attention == "flash-package" and dtype == "float32":
        dtype = "bfloat16"  # _flash_attention_forward's callers cast what kbit preparation has made fp32
    dropout = attention_dropout(model, setup)
    call = Attention(
        dtype=dtype, head=model.head_size, value_head=model.sizes.get("dv", model.head_size), queries=1, keys=1,
        masked=masked, heads=model.heads,
        key_heads=model.kv_heads if grouped or broadcast else model.heads, grouped=grouped, causal=not masked,
        dropout=dropout, training=setup.run == "training", mask_trained=trained,
    )
    wanted = setup.attention.removesuffix("-package")
    if wanted == "flash" and masked:
        wanted = "auto"  # a window is given as a mask, which flash does not take: PyTorch picks another for those
    device = device_of(setup.gpu)
    try:
        return chosen(call, device, "" if wanted == "auto" else wanted)
    except ValueError as reason:
        raise Impossible(f"--attention {setup.attention}: {reason}; give auto, or another of flash, efficient, "
                         "cudnn, math, eager") from None


@lru_cache(maxsize=1024)
def chosen(call: Attention, gpu: GPU, only: str) -> str:
    return choose(call, gpu, TORCH, only)


def attention_dropout(model: Model, setup: Setup) -> float:
    """The probability with which attention drops. Some classes have none, whatever their config says."""
    asked = model.attention_dropout if setup.dropout < 0 else setup.dropout
    return 0.0 if "undropped" in model.switches else asked


def dropouts_of(model: Model, setup: Setup) -> frozenset[str]:
    """By kind; --dropout stands for all of the model's, --lora-dropout for the adapters'.

    Source of LitGPT's 0.05: litgpt 0.4.5 finetune/lora.py. peft's default is 0.
    """
    given = {"attention": model.attention_dropout, "hidden": model.hidden_dropout, "embedding": model.embedding_dropout,
             "activation": model.activation_dropout, "path": float("drop_path" in model.switches)}
    if setup.run == "inference":
        return frozenset()
    given = given if setup.dropout < 0 else dict.fromkeys(given, setup.dropout)
    given["attention"] = attention_dropout(model, setup)
    default = 0.05 if setup.implementation == "litgpt" else 0.0
    given["adapter"] = default if setup.lora_dropout < 0 else setup.lora_dropout
    return frozenset(kind for kind, p in given.items() if p > 0)
