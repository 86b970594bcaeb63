"""Which weights of a run are quantised, and how: from --weights, or from what the model's file says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from functools import lru_cache
from typing import Any

from peakmem.architectures import code_of
from peakmem.architectures.definition import Row
from peakmem.errors import Impossible, printable
from peakmem.estimate.structure import Structure
from peakmem.immutable import replace
from peakmem.model import Model
from peakmem.quantity import exact
from peakmem.setup import Setup
from peakmem.tables.precisions import PRECISIONS
from peakmem.tables.quantised import BNB_4BIT, PLAIN, SCHEMES, Scheme, Stored

HEADS = ("lm_head", "lm_head.decoder", "embed_out", "output_layer", "cls.predictions.decoder",
         "vocab_projector", "generator_lm_head", "decoder")
IN_FIRST = ("gpt_oss", "llama4_text")  # banks of experts whose matrices lie as (in, out)
LINEAR = ("linear", "conv1d", "linear, read")
BNB = (*BNB_4BIT, "int8")
RAISED = {"no": "", "yes": "fp32", "trl": "fp32, but head and embeddings in 16 bit"}


def with_stored(m: Structure, model: Model, setup: Setup) -> Structure:
    """The structure with its weights as they are stored. Errors: Impossible."""
    word = asked_for(model, setup)
    if setup.kbit_prepare != "no" and (word not in BNB or setup.run != "training"):
        raise Impossible("--kbit-prepare is about training on bitsandbytes weights: give --weights nf4, nf4-double, "
                         "fp4, fp4-double or int8, and --lora-rank")
    if setup.kbit_prepare == "trl" and setup.precision != "amp-bf16":
        raise Impossible("--kbit-prepare trl: TRL casts embeddings and head to bf16 where its trainer computes under "
                         "autocast to bf16; give --precision amp-bf16, or --kbit-prepare yes")
    if not word:
        return m
    if word in PLAIN:
        under = PRECISIONS[setup.precision].autocast  # torch_dtype=bfloat16 and a trainer's bf16=True, for one
        if setup.run == "training" and word == under:
            return replace(m, dtype=word)
        if setup.run == "training" and word != m.dtype:
            raise Impossible(f"--weights {word} with --run training: there --precision says which dtype weights have; "
                             "autocast over 16-bit weights is --precision amp-bf16 --weights bf16")
        return replace(m, dtype=word, autocast="" if word != "fp32" else m.autocast)
    scheme = SCHEMES[word]
    refuse(scheme, m, model, setup)
    group, bits = 0, 4
    kept = last_module(m)
    if model.stored and model.stored[0] == word:
        bits, group = model.stored[1:3]
        kept = tuple(pattern for pattern, _ in model.stored[3]) or kept
    recipe = PRECISIONS[setup.precision]
    autocast = m.autocast if setup.run == "training" else ""
    changed = replace(m, dtype=recipe.autocast or recipe.weights, autocast=autocast,
                      stored=Stored(word, bits, group, kept, setup.kbit_prepare, packed_from(m)))
    check_kept(changed, model)
    read = [module_of(row) for row in rows_of(changed) if row.module == "linear, read" and is_packed(changed, row)]
    if read:
        part = read[0].rpartition(".")[2]
        raise Impossible(f"--weights {word}: {model.name} multiplies by the weight of {part} itself, which "
                         "transformers cannot do once it is packed; leave --weights out")
    if not any(is_packed(changed, row) for row in rows_of(changed)):
        raise Impossible(f"--weights {word}: {model.name} has no weights that it would pack "
                         f"({'experts' if not scheme.linear else 'linear layers'})")
    return changed


def asked_for(model: Model, setup: Setup) -> str:
    """What --weights comes to; empty: as the recipe has it. Full training unpacks a quantised file."""
    if setup.weights != "auto":
        return setup.weights
    if not model.stored or setup.run == "training" and not (setup.lora_rank and SCHEMES[model.stored[0]].trains):
        return ""
    return model.stored[0]


def refuse(scheme: Scheme, m: Structure, model: Model, setup: Setup) -> None:
    """What no stack does with quantised weights, in one line each. Errors: Impossible."""
    name = f"--weights {scheme.name}"
    if setup.implementation not in ("transformers", "litgpt"):
        raise Impossible(f"{name} goes with --implementation transformers, not with {setup.implementation}")
    if setup.run == "inference":
        return
    if not setup.lora_rank:
        raise Impossible(f"{name} with full training: packed weights get no gradient; train adapters with --lora-rank, "
                         "or leave --weights out")
    if not scheme.trains:
        known = ", ".join(row.name for row in SCHEMES.values() if row.trains)
        raise Impossible(f"{name} is for --run inference; adapters are trained on {known}")
    if scheme.experts and model.experts:
        raise Impossible(f"{name}: its experts' backward is not known; take nf4, which leaves experts alone")
    if m.shard == "zero3" or setup.shard == "zero3" or setup.offload not in ("none", "optimizer"):
        raise Impossible(f"{name} with --shard zero3 or offloaded weights: DeepSpeed divides packed weights only where "
                         "they are stored as 16-bit numbers (bnb_4bit_quant_storage), which peakmem does not count; "
                         "with zero2 or fsdp2 every GPU holds them whole")


def check_kept(m: Structure, model: Model) -> None:
    """Refuse a file that packs a module in some layers and not in others. Errors: Impossible."""
    assert model.stored is None or len(model.stored) == 4
    partly = [pattern for pattern, whole in model.stored[3] if not whole] if model.stored and m.stored.kept else []
    for row in rows_of(m):
        for pattern in partly:
            if is_packable(m, row) and fits(module_of(row), pattern):
                raise Impossible(f"quantization_config leaves {printable(pattern, 60)} out in some layers and not in "
                                 "others, which peakmem does not count yet; --weights bf16 counts it whole")


def is_packed(m: Structure, row: Row) -> bool:
    """Whether this parameter lies in packed bytes."""
    return bool(m.stored.scheme) and is_packable(m, row) and not any(fits(module_of(row), p) for p in m.stored.kept)


def is_packable(m: Structure, row: Row) -> bool:
    """Linear weights but the head; banks of experts where the scheme packs them. No router, no norm, no embedding."""
    scheme = SCHEMES[m.stored.scheme]
    if is_bank(row):
        return scheme.experts
    module, _, leaf = row.name.rpartition(".")
    if row.packed == "never" or row.packed == "not by bitsandbytes" and scheme.name in BNB:
        return False
    left_out = () if packs_head(m) else HEADS
    return scheme.linear and row.module in LINEAR and leaf == "weight" and not module.endswith(left_out)


def packs_head(m: Structure) -> bool:
    return getattr(code_of(m.architecture, m.implementation), "PACKS_HEAD", False)


def last_module(m: Structure) -> tuple[str, ...]:
    """The module of the last parameter, where that is a weight: transformers leaves it out unless a file says what.

    Source: transformers 5.24 quantizers/base.py, get_keys_to_not_convert.
    """
    module, _, leaf = [row for row in rows_of(m) if row.module not in ("buffer", "adapter")][-1].name.rpartition(".")
    return (module,) if leaf == "weight" and "*" not in module and not packs_head(m) else ()


def packed_from(m: Structure) -> str:
    """The dtype that this code packs from; empty: the run's own."""
    return getattr(code_of(m.architecture, m.implementation), "PACKED_FROM", "")


def is_bank(row: Row) -> bool:
    """Whether a parameter holds the matrices of all experts."""
    from peakmem.estimate.layout import dims

    shape = dims(row.shape)
    return row.module in ("", "expert") and len(shape) == 3 and shape[0] == ("E",)


def lies_in_first(m: Structure, row: Row) -> bool:
    """Whether a packed matrix's parameter lies as (in, out)."""
    return m.architecture in IN_FIRST if is_bank(row) else row.module == "conv1d"


def module_of(row: Row) -> str:
    return row.name if is_bank(row) else row.name.rpartition(".")[0]


@lru_cache(maxsize=4096)
def fits(module: str, pattern: str) -> bool:
    """Whether a pattern of modules_to_not_convert means this module: its name, a part of it, or what it lies in."""
    return any(fnmatch(module, before + pattern + after) for before in ("", "*.") for after in ("", ".*"))


def rows_of(m: Structure) -> Iterator[Row]:
    from peakmem.estimate.parameters import all_rows

    return all_rows(m, code_of(m.architecture, m.implementation))


def notes_on_weights(m: Structure, model: Model, numbers: Mapping[str, Any]) -> Iterator[str]:
    """What was assumed about quantised weights, and their bytes."""
    scheme = m.stored.scheme
    if not scheme:
        if model.stored:
            yield (f"the file's weights are {model.stored[0]}; counted in {m.dtype}: packed weights get no gradient; "
                   "--lora-rank trains adapters on them as they are")
        return
    from peakmem.estimate.interpret import interpret

    packed, total = weight_bytes(m, numbers)
    yield (f"weights as {scheme} ({SCHEMES[scheme].title}): {exact(packed)} packed, {exact(total)} with what is not; "
           f"head, embeddings, norms and routers are in {RAISED[m.stored.prepared] or m.dtype}")
    if scheme in BNB and any(is_bank(row) for row in rows_of(m)):
        yield "bitsandbytes packs linear layers alone: experts in one parameter stay as they are"
    if scheme == "int8":
        yield "LLM.int8 without outlier columns: how many there are is in the data"
    if scheme == "fp8" and not m.stored.group:
        yield "fp8 with one scale for each matrix; files with weight_block_size have one for each block"
    if m.run == "inference" and scheme not in BNB:
        yield (f"kernels read {scheme} weights as they are; an engine without such kernels dequantises one matrix at "
               "a time")
    if scheme == "gptq" and m.run == "training":
        yield "gptq: each matrix is dequantised in forward and again in backward; kernels differ"
    if interpret(m).elsewhere:
        return
    if scheme in BNB and m.shard in ("fsdp2", "zero1", "zero2"):
        yield (f"every GPU holds all packed weights: {m.shard} does not divide uint8 (a 16-bit bnb_4bit_quant_storage "
               "would let FSDP do so)")


def weight_bytes(m: Structure, numbers: Mapping[str, Any]) -> tuple[int, int]:
    """Bytes of packed weights, and of all parameters, before any rounding."""
    from peakmem.estimate.interpret import interpret
    from peakmem.estimate.packed import Packed
    from peakmem.estimate.replay import size, value

    packed = total = 0
    for p in interpret(m).parameters.values():
        parts = p.parts if isinstance(p, Packed) else [p]
        amount = sum(int(size(x.storage.record.key, numbers)) for x in parts if x.storage)
        amount *= int(value(p.fold, numbers)) if p.fold else 1
        total += amount
        packed += amount if isinstance(p, Packed) else 0
    return packed, total
