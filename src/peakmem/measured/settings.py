"""What a row says of a run, column by column, as settings; what no setting says is a reason in words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from peakmem.errors import PeakmemError, printable
from peakmem.measured.programs import program_of
from peakmem.measured.rows import NotExpressed, Row
from peakmem.measured.units import reading_of
from peakmem.tables.gpus import find_gpu
from peakmem.tables.optimizers import find_optimizer

Settings = dict[str, Any]
QUANTISED = ("nf4", "fp4", "int4", "gptq", "awq", "fp8", "int8")


def settings_of(row: Row) -> Settings:
    """Every setting of the run. Errors: NotExpressed."""
    training = row["kind"].startswith("train")
    if row["kind"] == "op":
        raise NotExpressed("a benchmark of one operation, no training step")
    if not training and row["kind"] != "inference":
        raise NotExpressed(f"neither training nor inference: {printable(row['kind'], 40)}")
    found: Settings = {"run": "training" if training else "inference"}
    for column in (sharding, sizes, precision, optimizer, recompute, attention, loss, adapters, gpu, offload):
        found |= column(row)
    found |= program_of(row).settings
    if row["fused_ce"].startswith("Liger"):
        found |= program_of(row).liger
    if found["run"] == "inference":
        found = {name: value for name, value in found.items() if name not in TRAINING_ONLY}
    if reading_of(row) == "allocated after load":
        found |= {"step": "first"}
    return found


TRAINING_ONLY = ("accumulation", "optimizer", "optimizer_implementation", "checkpoint", "loss", "outputs", "clip",
                 "lora_rank", "lora_targets", "lora_dropout", "kbit_prepare")


ENGINES: tuple[tuple[str, str], ...] = (
    ("fsdp1", "FSDP1 is not built: it frees and gathers flat parameters by events of several streams"),
    ("fsdp=", "FSDP1 is not built: it frees and gathers flat parameters by events of several streams"),
    ("no-shard", "FSDP1 without sharding is not built"),
    ("dp=", "Megatron's data parallelism without its distributed optimizer is not built"),
    ("pp=", "pipeline parallelism is not built"), ("tp=", "tensor parallelism in training is not built"),
    ("layer split", "a model split by layers over GPUs is not built"),
)
"""Ways to use several GPUs for which there is no setting, by what the rows call them."""


def sharding(row: Row) -> Settings:
    """One word and how many GPUs: `fsdp2=8`, `zero3=8`; `tp=4` in inference. Errors: NotExpressed."""
    said, gpus = row["sharding"], row.count("n_gpus", 1)
    if said in ("", "none"):
        if gpus > 1:
            raise NotExpressed(f"{gpus} GPUs, and how they share the work is not said")
        return {}
    found = re.fullmatch(r"(ddp|fsdp2|zero1|zero2|zero3|tp)=(\d{1,5})(?: cp=1)?", said)
    if found and int(found[2]) == gpus:
        if found[1] == "tp" and row["kind"] == "inference":
            return {"tensor_parallel": gpus}
        if found[1] != "tp" and row["kind"] != "inference":
            return {"shard": found[1], "gpus": gpus}
    reason = next((why for word, why in ENGINES if word in said), "peakmem does not know this way to share the work")
    raise NotExpressed(f"several GPUs ({printable(said, 40)}): {reason}")


def sizes(row: Row) -> Settings:
    """Tokens and batches. A reading after load or at the end has none of its own, and needs none."""
    still = "static" in row["kind"] or row["metric"].startswith("per-kind")
    if not row["seq"] and not still and row["kind"] != "inference":
        raise NotExpressed("the length of the sequences is not given")
    found = {"batch": row.count("micro_batch", 1), "accumulation": row.count("grad_accum", 1)}
    if row["seq"]:
        found["sequence"] = row.count("seq")
    elif still:
        found["sequence"] = 1
    if row["kind"] == "inference":
        found |= prompt(row)
    return found


def prompt(row: Row) -> Settings:
    """Prompt and generated tokens; a pool of the cache has as many tokens as it says, the last one just decoded."""
    if row["metric"].startswith("per-kind"):
        return {"sequence": max(row.count("seq", 2) - 1, 1), "generate": 1}
    tokens = re.search(r"(?:then )?(\d+)(?: new)? tokens", row["notes"]) or re.search(r"\+ (\d+) new", row["notes"])
    return {"generate": int(tokens[1]) if tokens and len(tokens[1]) < 8 else 50,
            "sequence": row.count("seq") or program_of(row).prompt or 1}


def precision(row: Row) -> Settings:
    """Weights, and autocast."""
    weights, compute = row["param_dtype"].lower(), row["compute_dtype"].lower()
    if any(word in weights for word in QUANTISED):
        return quantised(row)
    if row["compile"].startswith("yes"):
        raise NotExpressed("torch.compile: which tensors a compiled step keeps is not modelled")
    if weights == "fp32 (sharded)" and compute.startswith("bf16 (fsdp2 mp, fp32 reduce"):
        return {"precision": "mixed", "reduce_dtype": "fp32"}
    name = weights.split()[0] if weights else ""
    if "autocast" in compute:
        low = compute.split()[0]
        return {"precision": f"amp-{low}", **({"weights": name} if name == low else {})}
    if name not in ("bf16", "fp16", "fp32"):
        raise NotExpressed(f"dtype of the weights: {printable(row['param_dtype'] or 'not given', 40)}")
    computes = re.match(r"(fp32|bf16|fp16)\b", compute)
    if compute and (computes is None or computes[1] != name):
        said = printable(row["compute_dtype"], 40)
        raise NotExpressed(f"weights in {name} that compute in {said}: no setting says so")
    if "main" in weights and name == "bf16":
        return {"precision": "megatron"}
    if "main" in weights:
        raise NotExpressed(f"Megatron's gradients and states over {name} weights: --precision megatron is bf16")
    if "master" in weights:
        return {"precision": "mixed"}
    if program_of(row).autocast == "all" and name != "fp32":
        return {"precision": f"amp-{name}", "weights": name}
    return {"precision": name}


STORED = (("mxfp4", "", "mxfp4"), ("nvfp4", "", "nvfp4"), *((f"{bits}", again, f"{bits}-double")
          for bits in ("nf4", "fp4") for again in ("double", "nested")), ("nf4", "", "nf4"), ("fp4", "", "fp4"),
          ("gptq", "", "gptq"), ("awq", "", "awq"), ("fp8", "", "fp8"), ("bnb int8", "", "int8"),
          ("llm.int8", "", "int8"))
"""Words of a row, and what --weights calls it; the first that fits."""


def quantised(row: Row) -> Settings:
    """A base of few bits; what is not packed is in the dtype that is computed in. Errors: NotExpressed."""
    weights, text = row["param_dtype"].lower(), f"{row['param_dtype']} {row['lora']}".lower()
    found = next((ours for one, two, ours in STORED if one in weights and two in text), "")
    found = found or next((ours for one, two, ours in STORED if one in text and two in text), "")
    if not found:
        raise NotExpressed(f"a quantised base ({printable(row['param_dtype'], 40)}) that --weights does not have")
    compute = re.split(r"[/ -]", row["compute_dtype"].lower())[0] or "bf16"
    if compute not in ("bf16", "fp16", "fp32"):
        raise NotExpressed(f"what a {found} base computes in: {printable(row['compute_dtype'], 40)}")
    program = program_of(row)
    old = {"stack": "bitsandbytes-0.42"} if program.settings.get("implementation") == "litgpt" else {}
    prepared = "prepare_model_for_kbit_training is applied" in row["notes"]
    return {**old, "weights": found, "precision": f"amp-{compute}" if program.autocast else compute,
            "kbit_prepare": program.kbit if prepared else "no"}


OPTIMIZERS: Mapping[str, str] = {"sgd momentum": "momentum", "8-bit adamw": "adamw-8bit", "adamw8bit": "adamw-8bit",
                                 "adam8bit": "adamw-8bit", "adamw4bit": "adamw-4bit"}
"""How rows write what --optimizer calls otherwise, without whose it is: `bnb `, `torchao `, `DeepSpeed CPU `."""
REMARKS = {"torch", "adapters", "adapters only", "bf16 states", "fp32 states", "fp32", "fp32 master", "m", "v sharded",
           "fp32 m", "v"}
"""In brackets, and said by other columns as well."""
WAYS = ("fused", "foreach", "loop")


def optimizer(row: Row) -> Settings:
    """`AdamW (torch, foreach)`: its name, how it runs, and remarks. Errors: NotExpressed."""
    said = row["optimizer"]
    if not said:
        return {"optimizer": "none"}
    parts = re.fullmatch(r"(?:torch |torchao |bnb |DeepSpeed |CPU )*([\w -]+?)(?: \(([\w ,-]+)\))?", said)
    words = [word.strip() for word in (parts[2] or "").split(",") if word.strip()] if parts else []
    name = parts[1].lower() if parts else ""
    try:
        name = find_optimizer(OPTIMIZERS.get(name, name)).name
    except PeakmemError:
        name = ""
    if not name or set(words) - REMARKS - set(WAYS):
        raise NotExpressed(f"optimizer: {printable(said, 60)}: no setting says so")
    ways = [word for word in words if word in WAYS]
    return {"optimizer": name, **({"optimizer_implementation": ways[0]} if ways else {})}


def recompute(row: Row) -> Settings:
    return named(row, "recompute", RECOMPUTE)


RECOMPUTE: Mapping[str, Settings] = {
    "": {}, "none": {"checkpoint": "none"}, "full": {"checkpoint": "full"},
    "full (non-reentrant per block)": {"checkpoint": "full"},
    "selective op-SAC (save every 2nd aten.mm + sdpa outputs)": {
        "checkpoint": "selective", "checkpoint_save": ("every-second-mm", "attention")},
}


def offload(row: Row) -> Settings:
    """What lies in the host's memory. Errors: NotExpressed."""
    return named(row, "offload", {"": {}, "none": {}, "optimizer to CPU": {"offload": "optimizer"}})


ATTENTION: tuple[tuple[str, str], ...] = (
    ("eager", "eager"), ("flash 2", "flash-package"), ("flash (fa", "flash-package"),
    ("flash (cudnn)", "cudnn"), ("flash", "flash"), ("sdpa", "auto"),
    ("multihead", "auto"),
)


def attention(row: Row) -> Settings:
    """Which kernel, or which way of choosing one."""
    said = row["attention"].lower()
    if said in ("", "n/a"):
        return {}
    found = next((ours for words, ours in ATTENTION if words in said), "")
    if not found:
        raise NotExpressed(f"attention: {printable(row['attention'], 40)}")
    return {"attention": found}


LOSSES: Mapping[str, Settings] = {
    "": {}, "no": {"loss": "upcast"}, "no loss computed": {"loss": "sum"}, "Liger fused linear CE": {"loss": "fused"},
    "Triton CE (not fused with the head)": {"loss": "inplace"}, "chunked (8)": {"loss": "chunked", "loss_chunks": 8},
    "chunked lm_head (128 tokens)": {},
}


def loss(row: Row) -> Settings:
    return {**named(row, "fused_ce", LOSSES)}


def adapters(row: Row) -> Settings:
    """`r=16 q,v`: rank and modules, by the letters that the sources use."""
    text = row["lora"].partition(";")[0]
    if not text:
        return {}
    found = re.fullmatch(r"r=(\d{1,6}) ([\w,-]+)", text)
    if not found:
        raise NotExpressed(f"adapters: {printable(row['lora'], 40)}")
    words = [word.removesuffix("_proj") for word in found[2].split(",")]
    rank = {"lora_rank": int(found[1])}
    if program_of(row).settings.get("implementation") == "litgpt":
        if set(words) - set(LITGPT):
            raise NotExpressed(f"adapters on {printable(found[2], 40)}")
        return {**rank, "lora_targets": tuple(LITGPT[word] for word in words)}
    if words == ["all-linear"]:
        return {**rank, "lora_targets": ("all-linear",)}
    return {**rank, "lora_targets": tuple(f"{word}_proj" if word in PROJECTIONS else word for word in words)}


PROJECTIONS = {"q", "k", "v", "o", "gate", "up", "down"}
LITGPT = {"q": "query", "k": "key", "v": "value", "o": "projection", "mlp": "mlp", "head": "head"}
"""LitGPT's own words for what it adapts."""


def gpu(row: Row) -> Settings:
    """The GPU; where none is named, or one of several sizes, an A100 of 80 GB: it decides kernels and workspaces."""
    name = re.sub(r"(\d+)Ti\b", r"\1 Ti", row["gpu"].partition(",")[0]).strip()
    for word in (name, re.sub(r"\s*\d+GB$", "", name), f"{name} 80GB"):
        try:
            return {"gpu": find_gpu(word).name if word else "A100-80GB"}
        except PeakmemError:
            continue
    raise NotExpressed(f"GPU: {printable(row['gpu'], 40)}")


def named(row: Row, column: str, table: Mapping[str, Settings]) -> Settings:
    """A cell that must be in a table. Errors: NotExpressed."""
    if row[column] not in table:
        raise NotExpressed(f"{column}: {printable(row[column], 60)}: no setting says so")
    return table[row[column]]


