"""The points of the agreement grid: configurations × settings, drawn with a fixed seed."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agreement_compare import Point

from peakmem.errors import PeakmemError

DATA = Path(__file__).resolve().parents[1] / "tests" / "data"
FAMILIES = (
    "bert bloom cohere convnext convnextv2 deepseek_v2 deepseek_v3 deit dinov2 dinov2_with_registers falcon gemma "
    "gemma2 gemma3_text gpt2 gpt_bigcode gpt_neox gpt_oss gptj granite llama llama4_text mistral mixtral mpt olmo2 "
    "opt phi phi3 qwen2 qwen3 qwen3_5_text qwen3_moe qwen3_next roberta stablelm starcoder2 t5 vit"
).split()
"""Values of model_type with a point each in the tests; the grid has those of every record."""
PICTURED = ("gemma3", "gemma4", "idefics3", "internvl", "llava", "mistral3", "paligemma", "qwen2_5_vl", "qwen2_vl",
            "qwen3_5", "qwen3_vl", "qwen3_vl_moe", "smolvlm")
SEQ2SEQ = ("t5", "bart", "m2m_100", "marian", "mbart", "pegasus")
AXES: Mapping[str, tuple[Any, ...]] = {
    "precision": ("bf16", "fp16", "fp32", "amp-bf16", "amp-fp16", "mixed"),
    "attention": ("auto", "auto", "auto", "eager", "eager", "flash", "efficient", "cudnn", "math"),
    "checkpoint": ("none", "none", "none", "full", "selective"),
    "checkpoint_save": (("attention",), ("attention",), ("mm",), ("bmm",), ("attention", "mm")),
    "optimizer": (
        *("adamw", "adamw", "adamw", "adam", "sgd", "momentum", "nesterov", "adafactor", "lion", "muon", "amsgrad"),
        *("rmsprop", "adagrad", "adadelta", "adamax", "nadam"),
    ),
    "optimizer_implementation": ("auto", "foreach", "fused", "loop"),
    "accumulation": (1, 1, 2, 3),
    "batch": (1, 2, 3),
    "sequence": (1, 33, 40, 61, 64, 97),
    "target": (0, 0, 33, 48),
    "lora_rank": (0, 0, 0, 8),
    "lora_targets": (("all-linear",), ("all-linear",), ("default",)),
    "freeze": ("", "", "", "", "", "embed", "norm", "mlp", "attn", "bias"),
    "frozen_layers": (0, 0, 0, 0, 1),
    "loss": ("upcast", "upcast", "upcast", "sum"),
    "clip": (False, False, True),
    "set_to_none": (True, True, False),
    "step": ("steady", "steady", "first"),
    "dropout": (-1.0, -1.0, 0.0, 0.1),
    "shard": ("none", "none", "none", "none", "fsdp2"),
    "gpu": ("", "", "", "H100"),
    "gpus": (8, 64, 1024),
    "reshard": ("layers", "layers", "all", "none"),
    "reduce_dtype": ("auto", "auto", "bf16"),
    "sync_each_batch": (True, False),
    "tied": ("", "", "", "other"),
    "layers": (0, 0, 0, 1, 2, 5),
}
WIDER: Mapping[str, tuple[Any, ...]] = {
    "weights": ("auto", "nf4", "nf4-double", "fp4", "fp4-double"),
    "kbit_prepare": ("no", "no", "yes", "trl"),
    "low": (False, True),
    "lora_dropout": (-1.0, 0.1),
    "some_targets": (False, False, True),
    "eight_bits": (*(False,) * 7, True),
    "reduce_fp16": (False, False, True),
    "images": (-1, -1, 0),
    "two_frozen": (False, True),
}
"""Drawn apart, for the same reason. low: weights in autocast's dtype; some_targets: adapters on a few projections;
eight_bits: bitsandbytes' AdamW; two_frozen: another pattern for --freeze."""
SOME = ("q_proj,v_proj", "o_proj,down_proj", "gate_proj,k_proj", "c_attn,c_proj", "query_key_value", "Wqkv,out_proj",
        "q,v,wo", "query,dense", "fc1,fc2")
NEEDS_SHARDS = ("gpus", "reshard", "reduce_dtype", "sync_each_batch")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
MORE: tuple[Mapping[str, Any], ...] = (
    {
        "model_type": "granite", "hidden_size": 96, "intermediate_size": 160, "num_hidden_layers": 3,
        "num_attention_heads": 6, "num_key_value_heads": 2, "vocab_size": 401, "embedding_multiplier": 12.0,
        "attention_multiplier": 0.0156, "residual_multiplier": 0.22, "logits_scaling": 16.0, "pad_token_id": 0,
    },
    {
        "model_type": "phi3", "hidden_size": 96, "intermediate_size": 168, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 523, "max_position_embeddings": 131072,
        "original_max_position_embeddings": 4096, "pad_token_id": 0, "eos_token_id": 0, "bos_token_id": 0,
        "rope_scaling": {"type": "longrope", "long_factor": [1.5] * 12, "short_factor": [1.1] * 12},
    },
)  # fmt: skip
"""Configurations that no record has."""


def configs() -> list[dict[str, Any]]:
    """Every tiny configuration of the reference records once, in a fixed order, then `MORE`."""
    return [*recorded(), *map(dict, MORE)]


def recorded(families: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Every tiny configuration once, in the order of the records: of these families, or of all."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(DATA.glob("traced_*.json")):
        records = json.loads(path.read_text(encoding="utf-8"))
        for record in records["steps"] if isinstance(records, dict) else records:
            if "events" in record and isinstance(record.get("config"), dict):
                config = {k: v for k, v in record["config"].items() if k not in ("dtype", "torch_dtype")}
                if families and config["model_type"] not in families:
                    continue
                if record.get("task") == "mlm" and config["model_type"] == "bert":
                    config["architectures"] = ["BertForMaskedLM"]
                found.setdefault(json.dumps(config, sort_keys=True), config)
    return [*found.values()]


def settings(config: Mapping[str, Any], seed: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """A configuration and settings drawn with a seed, without what means nothing together."""
    draw = random.Random(seed)
    config, made = dict(config), {name: draw.choice(values) for name, values in AXES.items()}
    if made["attention"] == "cudnn":
        made["gpu"] = "H100"
    if made.pop("tied"):
        config["tie_word_embeddings"] = not config.get("tie_word_embeddings", False)
    layers = made.pop("layers")
    key = next((key for key in LAYERS if key in config), "")
    if layers and key and "layer_types" not in config:
        config[key] = layers
    if made["checkpoint"] != "selective":
        del made["checkpoint_save"]
    if config["model_type"] not in SEQ2SEQ:
        del made["target"]
    if made["precision"] == "mixed" and made["shard"] == "none":
        made["optimizer"] = draw.choice(("adamw", "adam", "sgd", "momentum", "nesterov", "amsgrad", "lion"))
    if made["shard"] == "fsdp2":
        if made["optimizer"] in ("adafactor", "muon"):  # torch's own refuse divided parameters
            made["optimizer"] = "adamw"
        if made["optimizer"] in ("sgd", "momentum", "nesterov", "adagrad"):  # their fused forms do
            made["optimizer_implementation"] = "foreach"
        made["precision"] = draw.choice(("mixed", "mixed", "bf16", "fp32", "amp-bf16"))
    if made["shard"] == "none":
        for name in NEEDS_SHARDS:
            del made[name]
    if made["lora_rank"]:
        made |= {"freeze": "", "frozen_layers": 0}
    else:
        del made["lora_targets"]
    return config, made | wider(made, config["model_type"], seed)


def wider(made: Mapping[str, Any], family: str, seed: str) -> dict[str, Any]:
    """What is drawn apart, where it means something beside the settings made."""
    draw = random.Random(f"{seed} wider")
    more = {name: draw.choice(values) for name, values in WIDER.items()}
    found: dict[str, Any] = {}
    if made["lora_rank"]:
        found |= {"lora_dropout": more["lora_dropout"], "weights": more["weights"]}
        if found["weights"] != "auto":
            found["kbit_prepare"] = more["kbit_prepare"]
        if more["some_targets"]:
            found["lora_targets"] = tuple(draw.choice(SOME).split(","))
    elif made["precision"].startswith("amp-") and more["low"]:
        found["weights"] = made["precision"].removeprefix("amp-")
    if more["eight_bits"] and made["shard"] == "none" and made["precision"] != "mixed":
        found |= {"optimizer": "adamw-8bit", "optimizer_implementation": "auto"}
    if made["shard"] == "fsdp2" and more["reduce_fp16"]:
        found["reduce_dtype"] = "fp16"
    if made.get("freeze") and more["two_frozen"] and made["shard"] == "none":
        found["freeze"] = f"{made['freeze']},norm"
    if family in PICTURED:
        found["images"] = more["images"]
    return found


def points(each: int, only: str = "", seed: str = "") -> Iterator[Point]:
    """The grid: `each` settings for every configuration."""
    met: Counter[str] = Counter()
    for config in configs():
        family = config["model_type"]
        met[family] += 1
        for j in range(each):
            name = f"{family}-{met[family]}-{j}{seed}"
            if only in name:
                yield possible(config, name)


def possible(config: Mapping[str, Any], name: str) -> Point:
    """The first point that neither side refuses, of a few; else the last of them."""
    for attempt in "abcdefgh":
        point = Point(name + attempt, *settings(config, name + attempt))
        try:
            point.setting()
            point.estimate()
        except PeakmemError:
            continue
        return point
    return point
