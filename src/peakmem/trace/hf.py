"""A Hugging Face model from its configuration, on a fake device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any, cast

import torch
from torch.utils.checkpoint import create_selective_checkpoint_contexts

from peakmem.errors import PeakmemError

from . import bits
from .picture_batches import pictured

TASKS = {
    "causal": "AutoModelForCausalLM",
    "image-text": "AutoModelForImageTextToText",
    "mlm": "AutoModelForMaskedLM",
    "seq2seq": "AutoModelForSeq2SeqLM",
    "image": "AutoModelForImageClassification",
    "speech": "AutoModelForSpeechSeq2Seq",
    "contrastive": "AutoModel",
}
_IGNORED = ("dtype", "torch_dtype", "quantization_config", "auto_map")


def build(
    config: Mapping[str, Any],
    task: str,
    dtype: torch.dtype,
    attention: str,
    lora: Mapping[str, Any] | None = None,
    checkpointing: bool = False,
    selective: Sequence[str] | None = None,
    dropout: float | None = None,
    stored: Mapping[str, Any] | None = None,
) -> torch.nn.Module:
    """Return the model on the meta device, in training mode.

    Building on meta and moving once keeps tied parameters tied and costs no memory; random initialisation under
    ``FakeTensorMode`` may loop for ever (``trunc_normal_``). `selective`: operations, written ``aten.mm.default``,
    whose outputs checkpointing keeps instead of running them again. `dropout`: every probability of the configuration.
    `attention`: sdpa or eager; auto: each part as its own class prefers.
    `stored`: how bitsandbytes packs linear weights: ``scheme``, modules ``kept``, how the rest is ``prepared``.
    """
    import transformers

    known = {key: read(value) for key, value in config.items() if key not in _IGNORED}
    settings = transformers.AutoConfig.for_model(**known)
    settings.architectures = []  # where a task has several classes, the first of them
    settings.use_cache = settings.get_text_config().use_cache = False
    for name in ("encoder_layerdrop", "decoder_layerdrop", "layerdrop"):
        if hasattr(settings, name):
            setattr(settings, name, 0.0)  # whether a layer is dropped hangs on a value
    if task == "seq2seq" and getattr(settings, "decoder_start_token_id", None) is None:
        settings.decoder_start_token_id = settings.pad_token_id or 0  # its value decides no size
    if dropout is not None:
        _set_dropouts(settings, dropout)
    with torch.device("meta"):
        pictured = task == "causal" and bool(known.get("vision_config"))  # the class that has the tower, too
        auto = getattr(transformers, TASKS["image-text" if pictured else task])
        wanted = None if attention == "auto" else attention
        model: Any = auto.from_config(settings, dtype=dtype, attn_implementation=wanted)
        if stored is not None:
            bits.quantise(model, stored["scheme"], dtype, stored["kept"])
            if stored["prepared"] != "no":
                model = _prepared(model, stored["prepared"] == "trl")
        if lora is not None:
            model = _with_lora(model, lora, task)
    if checkpointing:
        options: dict[str, Any] = {"use_reentrant": False}
        if selective is not None:
            kept = [_operation(name) for name in selective]
            options["context_fn"] = partial(create_selective_checkpoint_contexts, kept)
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=options)
    for module in model.modules():
        if isinstance(getattr(module, "unique_layer_types", None), set):  # Gemma 4's tables come in the order of hashes
            module.unique_layer_types = sorted(cast(set[str], module.unique_layer_types))
    if task == "contrastive":
        model.forward = partial(model.forward, return_loss=True)
    model.train()
    return cast(torch.nn.Module, model)


def read(value: Any) -> Any:
    """A value of a config.json, where infinity is ``{"__float__": "Infinity"}`` (configuration_utils.py)."""
    if isinstance(value, list):
        return [read(each) for each in value]
    if not isinstance(value, dict):
        return value
    if set(value) == {"__float__"} and isinstance(value["__float__"], str):
        return float(value["__float__"])
    return {key: read(each) for key, each in value.items()}


def _set_dropouts(settings: Any, probability: float) -> None:
    """Set every dropout of a configuration and of those inside it, such as MPT's ``attn_config``."""
    for name, value in vars(settings).items():
        if hasattr(value, "to_dict"):
            _set_dropouts(value, probability)
        elif ("dropout" in name or name.endswith("pdrop") or name == "drop_path_rate") and type(value) in (int, float):
            vars(settings)[name] = probability  # past the check of its type: MPT's attn_pdrop is an int


def _operation(name: str) -> Any:
    """Return the operation named like ``aten.mm.default``."""
    return attrgetter(name)(torch.ops)


def _with_lora(model: torch.nn.Module, lora: Mapping[str, Any], task: str) -> torch.nn.Module:
    import peft

    config = peft.LoraConfig(
        r=lora["r"],
        lora_alpha=lora["alpha"],
        target_modules=lora.get("targets", "all-linear"),
        lora_dropout=lora.get("dropout", 0.0),
        task_type={"causal": "CAUSAL_LM", "seq2seq": "SEQ_2_SEQ_LM"}.get(task),
    )
    return peft.get_peft_model(model, config)


def _prepared(model: torch.nn.Module, lowered: bool) -> torch.nn.Module:
    """Raise what is not packed to fp32. `lowered`: as TRL's peft_module_casting_to_bf16 does it, what
    its modules' names call embeddings and head is bf16 again afterwards."""
    import peft

    prepare: Any = peft.prepare_model_for_kbit_training
    prepared = cast(torch.nn.Module, prepare(model, use_gradient_checkpointing=False))
    for name, module in prepared.named_modules() if lowered else ():
        cast_back = any(word in name for word in ("lm_head", "embed_tokens", "wte", "wpe")) and "norm" not in name
        if cast_back and getattr(module, "weight", None) is not None and module.weight.dtype == torch.float32:
            module.to(torch.bfloat16)
    return prepared


def layers_of(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Return the modules of the model's longest module list, its layers."""
    lists = [list(m) for m in model.modules() if isinstance(m, torch.nn.ModuleList)]
    if not lists:
        raise PeakmemError("the model has no list of layers (torch.nn.ModuleList)")
    return max(lists, key=len)


def all_layers_of(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Return the layers of every list that lies in no other: an encoder's, a decoder's, those of its stages.

    Those of pictures come first, in the order in which they run.
    """
    lists: dict[str, torch.nn.ModuleList] = {}
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.ModuleList) and not any(name.startswith(f"{outer}.") for outer in lists):
            lists[name] = module
    ordered = sorted(lists, key=lambda name: "vision" not in name)
    return [layer for name in ordered for module in lists[name] for layer in _of_stage(module)] or layers_of(model)


def _of_stage(module: torch.nn.Module) -> list[torch.nn.Module]:
    """Return the layers of a stage, or the layer itself."""
    own = getattr(module, "layers", None)
    return list(own) if isinstance(own, (torch.nn.ModuleList, torch.nn.Sequential)) else [module]


def _empty(tensor: torch.Tensor, device: str) -> torch.Tensor:
    """Return a tensor like this one, without contents; of a DTensor only this rank's part is made."""
    part = getattr(tensor, "_local_tensor", None)
    if part is None:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
    from torch.distributed.tensor import DTensor

    whole: Any = tensor
    return DTensor.from_local(_empty(part, device), whole.device_mesh, whole.placements, run_check=False,
                              shape=tensor.shape, stride=tensor.stride())


def move(model: torch.nn.Module, device: str) -> dict[int, torch.Tensor]:
    """Give every parameter and buffer of a meta model an empty storage on `device`, once each.

    Call it under ``FakeTensorMode``. Returns the new tensors by the ``id`` of the old.
    """
    moved: dict[int, torch.Tensor] = {}

    def fresh(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in moved:
            new = _empty(tensor, device)
            if bits.is_packed(tensor):
                new = bits.packed(tensor, device)
            elif isinstance(tensor, torch.nn.Parameter):
                new = torch.nn.Parameter(new, requires_grad=tensor.requires_grad)
            moved[id(tensor)] = new
            keep.append(tensor)
        return moved[id(tensor)]

    keep: list[torch.Tensor] = []
    for module in model.modules():
        tables: tuple[dict[str, Any], ...] = (module._parameters, module._buffers)
        for table in tables:
            for name, tensor in table.items():
                if tensor is not None:
                    table[name] = fresh(tensor)
        for name, value in vars(module).items():
            # transformers keeps the rotary tables it started with in a plain attribute.
            if isinstance(value, torch.Tensor) and id(value) in moved:
                setattr(module, name, moved[id(value)])
    model.__dict__["_moved_from"] = keep  # their ids must stay taken while the result is in use
    return moved


def batch(
    config: Any,
    task: str,
    dtype: torch.dtype,
    size: int,
    sequence: int | None,
    device: str,
    target: int | None = None,
    grid: Sequence[int] = (),
) -> dict[str, torch.Tensor]:
    """Return one batch: tokens and labels, int64, size × sequence (labels size × `target` if given), with text of
    pictures one for each sequence; or pixels in the parameters' dtype and one class each, or sound and its text, or
    pixels and their text.

    `grid`: of pictures, see `pictured`.
    """
    if task == "image":
        size_of = getattr(config, "image_size", 224)  # where no file says it
        side = size_of if isinstance(size_of, (tuple, list)) else (size_of,) * 2
        pixels = torch.empty(size, config.num_channels, *side, dtype=dtype, device=device)
        return {"pixel_values": pixels, "labels": torch.empty(size, dtype=torch.int64, device=device)}
    if sequence is None:
        raise ValueError(f"a {task} batch needs a sequence length")
    lengths = {"input_ids": sequence, "labels": target or sequence}
    tokens = {name: torch.empty(size, n, dtype=torch.int64, device=device) for name, n in lengths.items()}
    if task == "speech":
        features = torch.empty(size, config.num_mel_bins, 2 * config.max_source_positions, dtype=dtype, device=device)
        return {"input_features": features, "labels": tokens["labels"]}
    if task == "contrastive":
        seen = config.vision_config
        pixels = torch.empty(size, seen.num_channels, seen.image_size, seen.image_size, dtype=dtype, device=device)
        return {"input_ids": tokens["input_ids"], "pixel_values": pixels}
    if task != "image-text":
        return tokens
    return pictured(config, tokens, dtype, device, grid)
