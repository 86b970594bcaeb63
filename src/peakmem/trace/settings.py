"""Settings of the field table -> the setting that `record` traces; what a trace cannot do is refused in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peakmem.errors import Impossible
from peakmem.model import Model
from peakmem.readers.hf_config import CLASSES
from peakmem.setup import FIELDS, Setup
from peakmem.tables.gpus import find_gpu
from peakmem.tables.kernels import GPU
from peakmem.tables.optimizers import find_optimizer
from peakmem.tables.pictures import grids_of, images_of

DTYPE: Mapping[str, tuple[str, str | None]] = {
    "bf16": ("bf16", None),
    "fp16": ("fp16", None),
    "fp32": ("fp32", None),
    "amp-bf16": ("fp32", "bf16"),
    "amp-fp16": ("fp32", "fp16"),
    "mixed": ("bf16", None),
}
"""The module's dtype and autocast's, by precision."""
OPTIMIZER: Mapping[str, str] = {
    "sgd": "SGD",
    "momentum": "SGD-momentum",
    "nesterov": "SGD-nesterov",
    "adam": "Adam",
    "adamw": "AdamW",
    "amsgrad": "AdamW-amsgrad",
    "rmsprop": "RMSprop",
    "adagrad": "Adagrad",
    "adadelta": "Adadelta",
    "adamax": "Adamax",
    "nadam": "NAdam",
    "adafactor": "Adafactor",
    "lion": "Lion",
    "muon": "Muon",
    "adamw-8bit": "AdamW-8bit",
}
STATES: dict[str, tuple[str, ...]] = {
    "SGD": (),
    "SGD-momentum": ("momentum_buffer",),
    "SGD-nesterov": ("momentum_buffer",),
    "Adam": ("exp_avg", "exp_avg_sq"),
    "AdamW": ("exp_avg", "exp_avg_sq"),
    "AdamW-amsgrad": ("exp_avg", "exp_avg_sq", "max_exp_avg_sq"),
    "Lion": ("exp_avg",),
}
"""Optimizers over fp32 master weights, and what each keeps of a parameter beside the master weight."""
KEPT: Mapping[str, tuple[str, ...]] = {
    "attention": (
        "aten._scaled_dot_product_flash_attention.default",
        "aten._scaled_dot_product_efficient_attention.default",
        "aten._scaled_dot_product_cudnn_attention.default",
    ),
    "mm": ("aten.mm.default", "aten.addmm.default"),
    "bmm": ("aten.bmm.default",),
}
"""Operations behind the words of --checkpoint-save."""
PACKED = ("nf4", "nf4-double", "fp4", "fp4-double")
"""Ways of packing linear weights that bitsandbytes' layers have and a trace can follow."""
ONLY: Mapping[str, tuple[Any, ...]] = {
    "run": ("training",),
    "implementation": ("transformers",),
    "shard": ("none", "fsdp2"),
    "offload": ("none",),
    "loss": ("upcast", "sum"),
    "state_dtype": ("auto",),
    "precision": tuple(DTYPE),
    "weights": ("auto", *PACKED),
}
"""Values that a trace can do, where it cannot do all."""
UNDERSTOOD = frozenset(
    {
        *ONLY,
        *"""
sequence target images image_height image_width batch accumulation optimizer attention checkpoint checkpoint_save
lora_rank lora_targets lora_dropout gpus gpu
optimizer_implementation step set_to_none clip dropout freeze frozen_layers reshard sync_each_batch reduce_dtype
kbit_prepare
""".split(),
    }
)
"""Settings that a trace follows, all their values or some."""
CUDNN = 92000  # of torch 2.13's default wheels: newer than 9.15, so preferred where the GPU is Hopper or Blackwell


def profile(name: str) -> GPU:
    """Return what kernel choice needs to know of a GPU; without one, or without a capability, an sm_80."""
    if name:
        major, dot, minor = find_gpu(name).capability.partition(".")
        if dot and major.isdigit() and minor.isdigit():
            return GPU(name, (int(major), int(minor)), CUDNN)
    return GPU()


def refuse(setup: Setup) -> None:
    """Raise `Impossible` for a setting that a trace cannot do."""
    for name, possible in ONLY.items():
        value = getattr(setup, name)
        if value not in possible and not (name == "weights" and loaded_low(setup)):
            flag = "--" + name.replace("_", "-")
            raise Impossible(f"trace has no {flag} {value}; it has {' and '.join(possible)}. See: peakmem estimate")
    for name, row in FIELDS.items():
        if name not in UNDERSTOOD and getattr(setup, name) != row["default"]:
            raise Impossible(f"trace has no --{name.replace('_', '-')}; see: peakmem estimate")
    if setup.precision == "mixed" and setup.shard == "none" and optimizer_of(setup) not in STATES:
        raise Impossible(f"trace has no --optimizer {setup.optimizer} over fp32 master weights (--precision mixed); "
                         "give --precision bf16, fp32 or amp-bf16, or --optimizer adamw")
    if setup.shard == "fsdp2" and optimizer_of(setup) == "AdamW-8bit":
        raise Impossible("trace has no --optimizer adamw-8bit with --shard fsdp2: bitsandbytes' step refuses the "
                         "DTensors that fully_shard makes of parameters; take --optimizer adamw")
    adapters, held = setup.lora_rank > 0, bool(setup.freeze) or setup.frozen_layers > 0
    if adapters and held:
        raise Impossible("trace does not combine --lora-rank with --freeze or --frozen-layers; see: peakmem estimate")
    unknown = [word for word in setup.checkpoint_save if word not in KEPT]
    if setup.checkpoint == "selective" and unknown:
        raise Impossible(f"trace keeps none of --checkpoint-save {', '.join(unknown)}; it has {', '.join(KEPT)}")


def optimizer_of(setup: Setup) -> str:
    """Return the optimizer's name in `optimizers.OPTIMIZERS`. Raises `Impossible` for one that cannot be traced."""
    name = find_optimizer(setup.optimizer).name
    if name not in OPTIMIZER:
        raise Impossible(f"trace has no --optimizer {setup.optimizer}; it has {', '.join(OPTIMIZER)}. See: peakmem "
                         "estimate")
    return OPTIMIZER[name]


def setting_of(config: Mapping[str, Any], model: Model, setup: Setup) -> dict[str, Any]:
    """Return the setting of `record.trace` (or of `sharded`, if it has ``shard``). Raises `Impossible`."""
    if "_class_name" in config:
        raise Impossible(
            f"trace builds classes of transformers, and {model.name} is one of diffusers: return it from a function of "
            "a file of your own, and give FILE.py:FUNCTION; or see peakmem estimate"
        )
    refuse(setup)
    dtype, autocast = DTYPE[setup.precision]
    sharded = setup.shard == "fsdp2"
    stored = stored_of(model, setup)
    if autocast and (stored is not None or loaded_low(setup)):
        dtype = autocast  # what is not packed is loaded in 16 bits, as transformers does
    convolves = model.image > 0 and not model.feed_forward  # there is no attention, and its class knows no other name
    eager = convolves or setup.attention == "eager" or (
        "eager_only" in model.switches and setup.attention == "auto")
    own = bool(model.towers)  # whose class may know another name
    setting: dict[str, Any] = {
        "config": dict(config),
        "task": task_of(model, setup),
        "dtype": "fp32" if sharded and setup.precision == "mixed" else dtype,
        "frozen_dtype": dtype if sharded and setup.precision == "mixed" else None,
        "autocast": autocast,
        "attention": "auto" if eager and own and setup.attention == "auto" else "eager" if eager else "sdpa",
        "kernel": "" if eager or setup.attention == "auto" else setup.attention,
        "checkpointing": setup.checkpoint != "none",
        "selective": _kept(setup),
        "lora": _lora(setup),
        "stored": stored,
        "freeze": [part.strip() for part in setup.freeze.split(",") if part.strip()],
        "frozen_layers": setup.frozen_layers,
        "optimizer": optimizer_of(setup),
        "optimizer_impl": find_optimizer(setup.optimizer).form(setup.optimizer_implementation),
        "master": setup.precision == "mixed" and not sharded,
        "accumulation": setup.accumulation,
        "batch": setup.batch,
        "seq": setup.sequence,
        "target_seq": setup.target or None,
        "grid": grids_of(model, setup),
        "loss": "sum" if setup.loss == "sum" else "model",
        "clip": 1.0 if setup.clip else None,
        "set_to_none": setup.set_to_none,
        "step": setup.step,
        "dropout": None if setup.dropout < 0 else setup.dropout,
    }
    if sharded:
        setting |= _sharding(setup)
    return setting


def _kept(setup: Setup) -> list[str] | None:
    if setup.checkpoint != "selective":
        return None
    return [name for word in setup.checkpoint_save for name in KEPT[word]]


def loaded_low(setup: Setup) -> bool:
    """Return whether weights are loaded in the dtype that autocast computes in: --precision amp-bf16 --weights bf16."""
    return setup.precision == f"amp-{setup.weights}"


def stored_of(model: Model, setup: Setup) -> dict[str, Any] | None:
    """Return how linear weights are packed, by --weights or by the model's file. Raises `Impossible`."""
    scheme = setup.weights
    kept: tuple[str, ...] = ()
    if model.stored and scheme in ("auto", model.stored[0]) and setup.lora_rank:
        scheme, kept = model.stored[0], tuple(pattern for pattern, _ in model.stored[3])
    if scheme == "auto" or scheme not in PACKED:
        if scheme != "auto" and not loaded_low(setup):
            raise Impossible(f"trace has no weights in {scheme}, as the file says; give --weights "
                             f"{' or '.join(PACKED)}, or see peakmem estimate")
        if setup.kbit_prepare != "no":
            raise Impossible(f"--kbit-prepare is about training on packed weights: give --weights {PACKED[0]}")
        return None
    if not setup.lora_rank:
        raise Impossible(f"--weights {scheme}: packed weights get no gradient; train adapters with --lora-rank")
    if setup.shard != "none":
        raise Impossible(f"trace does not combine --weights {scheme} with --shard; see: peakmem estimate")
    return {"scheme": scheme, "kept": kept, "prepared": setup.kbit_prepare}


def _lora(setup: Setup) -> dict[str, Any] | None:
    if not setup.lora_rank:
        return None
    words: dict[tuple[str, ...], Any] = {("all-linear",): "all-linear", ("default",): None}
    return {
        "r": setup.lora_rank,
        "alpha": 2 * setup.lora_rank,
        "targets": words.get(setup.lora_targets, list(setup.lora_targets)),
        "dropout": max(setup.lora_dropout, 0.0),
    }


def _sharding(setup: Setup) -> dict[str, Any]:
    mixed = setup.precision == "mixed"
    reduce = setup.reduce_dtype if setup.reduce_dtype != "auto" else "fp32" if mixed else None
    return {
        "shard": "fsdp2",
        "gpus": setup.gpus,
        "compute": "bf16" if mixed else None,
        "reduce": reduce,
        "reshard_after_forward": {"layers": True, "none": False}.get(setup.reshard, "all"),
        "sync": "every" if setup.sync_each_batch else "last",
    }


def task_of(model: Model, setup: Setup) -> str:
    """Return what the model is trained for, a key of `hf.TASKS`. Raises `Impossible` for pictures it cannot see."""
    if images_of(model, setup):
        return "image-text"
    if model.image and not model.vocabulary:
        return "image"
    if special := {"whisper": "speech", "clip": "contrastive", "siglip": "contrastive"}.get(model.architecture):
        return special
    if "encoder_decoder" in model.switches:
        return "seq2seq"
    return "mlm" if CLASSES.get(model.architecture, "").endswith("ForMaskedLM") else "causal"


def of_own_file(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields of `Step` (and ``kernel``) for a FILE.py:FUNCTION from the settings that were given.

    Raises `Impossible` for a setting that is the file's own business.
    """
    known = {
        "accumulation", "attention", "clip", "gpu", "gpus", "precision", "set_to_none", "shard", "step",
        "reshard", "reduce_dtype", "sync_each_batch",
    }
    for name in given:
        if name not in known:
            flag = "--" + name.replace("_", "-")
            raise Impossible(
                f"{flag}: with FILE.py:FUNCTION the file says it; flags are --accumulation, --attention, "
                "--clip, --gpu, --precision amp-bf16, --set-to-none, --shard fsdp2 --gpus N, --step"
            )
    setup = Setup.of(**given)
    sharded = setup.shard == "fsdp2"
    if setup.shard not in ("none", "fsdp2"):
        raise Impossible(f"trace has no --shard {setup.shard}; it has fsdp2")
    if "precision" in given and setup.precision not in ("amp-bf16", "amp-fp16", *(("mixed",) if sharded else ())):
        raise Impossible(
            f"--precision {setup.precision}: the file makes its tensors; with FILE.py:FUNCTION this says "
            "only whether autocast is on: amp-bf16 or amp-fp16"
        )
    if setup.attention == "eager":
        raise Impossible("--attention eager: the file's own code says that; give flash, efficient, cudnn or math")
    return {
        "accumulation": setup.accumulation,
        "autocast": setup.precision.removeprefix("amp-") if setup.precision.startswith("amp-") else None,
        "clip": 1.0 if setup.clip else None,
        "set_to_none": setup.set_to_none,
        "steps": 1 if setup.step == "first" else 2,
        "kernel": "" if setup.attention == "auto" else setup.attention,
        "gpus": setup.gpus if setup.gpus > 1 and not sharded else None,
        **(
            {"sharding": _sharding(setup) | ({} if "precision" in given else {"compute": None, "reduce": None})}
            if sharded
            else {}
        ),
    }
