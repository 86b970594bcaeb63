"""Parameters and buffers: made in order of definition, trained, frozen or with adapters.

Source of the adapters: peft 0.21.2, tuners/lora/layer.py: a linear layer becomes base_layer, lora_A, lora_B, in
this order; adapters are fp32 under a 16-bit base (tuners_utils.py, cast_adapter_dtype).
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatch
from functools import lru_cache
from types import ModuleType

from peakmem.architectures.definition import Layers, Row
from peakmem.errors import Impossible, printable
from peakmem.estimate.layout import FLOATS, Dims, dims
from peakmem.estimate.packed import make
from peakmem.estimate.stored import HEADS as OUTPUTS, LINEAR, is_bank, is_packed, lies_in_first
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Parameter, Tape, Tensor

NO_ADAPTER_ON = {**dict.fromkeys(("mamba", "mamba2", "nemotron_h", "falcon_mamba"), "layers.*.mixer.out_proj"),
                 "falcon_h1": "layers.*.mamba.out_proj"}
"""peft 0.21.2, tuners/tuners_utils.py, _check_lora_target_modules_mamba."""
HEADS = (*OUTPUTS, "classifier")


def define(tape: Tape, m: Structure, code: ModuleType) -> list[Tensor]:
    """Make every parameter and buffer; returns the buffers. Errors: Impossible when nothing is left to train."""
    tape.kind = "weights"
    buffers: list[Tensor] = []
    for row in code.define(m):
        if not isinstance(row, Layers):
            make_rows(tape, m, iter((row,)), "", "", buffers)
            continue
        for layer, kind, count in m.copies(row.stack):
            with tape.repeated(count):
                rows = (inner._replace(name=f"{row.name}.*.{inner.name}") for inner in row.block(kind))
                make_rows(tape, m, rows, layer, count, buffers)
    tape.kind = "temporary"
    if m.run == "training" and not any(p.trained for p in tape.parameters.values()):
        raise Impossible("nothing is left to train: --freeze and --frozen-layers cover every parameter")
    return buffers


def make_rows(tape: Tape, m: Structure, rows: Iterator[Row], layer: str, fold: str, buffers: list[Tensor]) -> None:
    """Make some rows; a module's adapters come after its weight and bias."""
    frozen = m.is_frozen(layer)
    waiting: tuple[str, list[tuple[str, Dims]]] = ("", [])
    adapter = Row("", "", "adapter")
    for row in rows:
        module, _, leaf = row.name.rpartition(".")
        if waiting[1] and module != waiting[0]:
            make_adapters(tape, waiting[1], layer, fold, adapter)
            waiting = "", []
        shape = dims(row.shape)
        if row.module == "buffer":
            buffers.append(tape.new(shape, row.dtype or m.buffer_dtype, None, row.name))
            continue
        adapted = has_adapter(m, row) and not frozen
        name = f"{module}.base_layer.{leaf}" if adapted else row.name
        dtype = row.dtype or dtype_of(m, row)
        trained = row.module == "adapter" or (row.module != "unused" and not m.lora and not is_held(m, row))
        if is_packed(m, row):
            packed = make(tape, m, shape, name, fold, lies_in_first(m, row), is_bank(row), row.dtype)
            add(tape, layer, packed, row)
        else:
            made = tape.parts.parameter(shape, dtype, name, trained and not frozen and dtype in FLOATS, fold)
            add(tape, layer, made, row)
        if adapted and leaf == "weight":
            outputs, inputs = (shape[1], shape[0]) if row.module == "conv1d" else (shape[0], shape[1])
            waiting = module, [(f"{module}.lora_A.default.weight", (("r",), inputs)),
                               (f"{module}.lora_B.default.weight", (outputs, ("r",)))]
            adapter = adapter._replace(reached=row.reached and row.module != "linear, read")
    make_adapters(tape, waiting[1], layer, fold, adapter)


def make_adapters(tape: Tape, adapters: list[tuple[str, Dims]], layer: str, fold: str, row: Row) -> None:
    for name, shape in adapters:
        add(tape, layer, tape.parts.parameter(shape, "fp32", name, True, fold), row._replace(name=name))


def add(tape: Tape, layer: str, p: Parameter, row: Row) -> None:
    p.module = kind_of(row)
    p.owned.reached, p.within = row.reached, row.within
    tape.parameters[layer + p.full_name] = p


def dtype_of(m: Structure, row: Row) -> str:
    """The module's dtype; fp32 where kbit preparation has raised what is not packed.

    bitsandbytes casts the biases of packed layers back in the first forward: packed.py, lower.
    """
    if m.stored.prepared == "no" or m.stored.prepared == "trl" and lowered_by_trl(m, row):
        return m.dtype
    layer = row._replace(name=f"{row.name.rpartition('.')[0]}.weight")
    return m.dtype if is_packed(m, layer) and m.step != "first" else "fp32"


def kind_of(row: Row) -> str:
    """What a parameter belongs to; the output head is told from other linear layers."""
    return "head" if row.name.rpartition(".")[0].endswith(HEADS) else row.module


def is_held(m: Structure, row: Row) -> bool:
    """Whether --freeze names this parameter."""
    return any(matches(named(row), pattern) for pattern in m.frozen)


def named(row: Row) -> str:
    """The name under which named_parameters gives it."""
    return f"{row.within}.weight" if row.within else row.name


def matches(name: str, pattern: str) -> bool:
    return fnmatch(name, f"*{pattern}*")


def has_adapter(m: Structure, row: Row) -> bool:
    """Whether a row's module gets an adapter: linear layers that are targets and not frozen by name."""
    module = row.name.rpartition(".")[0]
    return (row.module in LINEAR and row.adapted and any(is_target(module, pattern) for pattern in m.lora)
            and not is_held(m, row))


def is_target(module: str, pattern: str) -> bool:
    """Whether a module gets an adapter: `all-linear` means all but the output embeddings, as peft has it.

    A classifier is none of those (peft/tuners/tuners_utils.py, _maybe_include_all_linear_layers).
    """
    if pattern == "all-linear":
        return not module.endswith(OUTPUTS)
    return module == pattern or module.endswith(f".{pattern}")


@lru_cache(maxsize=256)
def check_parts(m: Structure) -> None:
    """Refuse targets and patterns that meet nothing. Errors: Impossible."""
    if not m.lora and not m.frozen:
        return
    from peakmem.architectures import code_of
    from peakmem.estimate.param_adapters import OLD_NAMES, adapts

    code = code_of(m.architecture, m.implementation)
    rows, words = list(all_rows(m, code)), getattr(code, "ADAPTERS", ())
    linear = [row.name.rpartition(".")[0] for row in rows if row.module in LINEAR and row.adapted]
    stacked = [name for name in OLD_NAMES if any(row.module == "adapter" for row in rows) and adapts(m, name)]
    if stacked and m.drops("adapter"):
        raise Impossible(f"--lora-dropout: peft has none for adapters on {', '.join(stacked)}, which are parameters, "
                         "not linear layers")
    for pair in (("w1", "w3"), ("gate_proj", "up_proj")) if "gate_up_proj" in stacked else ():
        if len(set(pair) & set(m.lora)) == 1:
            raise Impossible(f"--lora-targets {' '.join(set(pair) & set(m.lora))}: {' and '.join(pair)} of experts are "
                             "one parameter, and peft wants both; name both")
    for pattern in m.lora:
        if m.architecture in NO_ADAPTER_ON and is_target(NO_ADAPTER_ON[m.architecture], pattern):
            others = ", ".join(dict.fromkeys(name for module in linear
                                             if (name := module.rpartition(".")[2]) != "out_proj"))
            raise Impossible(f"--lora-targets {printable(pattern)}: peft refuses adapters on out_proj of "
                             f"{m.architecture}, which its fused kernel reads; name others: {others}")
        if words and pattern not in words:
            raise Impossible(f"--lora-targets {printable(pattern)}: --implementation {m.implementation} adapts "
                             f"{', '.join(words)}")
        if words or any(is_target(module, pattern) for module in linear):
            continue
        if any(pattern in OLD_NAMES[name] for name in stacked):
            continue
        known = ", ".join(dict.fromkeys(module.rpartition(".")[2] for module in linear))
        raise Impossible(f"--lora-targets {printable(pattern)}: {m.architecture} has no such linear module; "
                         f"it has {known}")
    for pattern in m.frozen:
        if not any(matches(named(row), pattern) for row in rows if row.module != "buffer"):
            modules = (row.name.rpartition(".")[0] or row.name for row in rows if row.module != "buffer")
            known = ", ".join(dict.fromkeys(module.rpartition(".")[2] for module in modules if module[-1] != "*"))
            raise Impossible(f"--freeze {printable(pattern)} meets no parameter; modules are named {known}")


def all_rows(m: Structure, code: ModuleType) -> Iterator[Row]:
    """Every kind of row once, those of layers under `layers.*`."""
    for row in code.define(m):
        if not isinstance(row, Layers):
            yield row
            continue
        for kind in sorted(kind for kind in m.kinds() if m.is_in(row.stack, kind)):
            for inner in row.block(kind):
                yield inner._replace(name=f"{row.name}.*.{inner.name}")


DEFAULT_TARGETS = {
    "bart": ("q_proj", "v_proj"), "codegen": ("qkv_proj",), "deberta-v2": ("query_proj", "value_proj"),
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "opt"),
                    ("q_proj", "v_proj")),
    **dict.fromkeys(("gptj", "gpt_neo", "stablelm"), ("q_proj", "v_proj")),
    **dict.fromkeys(("falcon", "bloom"), ("query_key_value",)),
    **dict.fromkeys(("gpt2", "gpt_bigcode"), ("c_attn",)),
    "mpt": ("Wqkv",),
    "phi": ("q_proj", "v_proj", "fc1", "fc2"),
    "gpt_neox": ("query_key_value",),
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "electra"), ("query", "value")),
    **dict.fromkeys(("t5", "mt5"), ("q", "v")),
    "nemotron_h": ("q_proj", "k_proj", "v_proj", "o_proj"),
}
"""What `default` means: peft 0.21.2, utils/constants.py, TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING. Not here:
mixtral, where peft 0.21.2 fails on its own, and gemma4, whose default is a pattern over the tower's names."""


def targets_of(architecture: str, words: tuple[str, ...]) -> tuple[str, ...]:
    """LoRA's targets with `default` replaced by what peft takes. Errors: Impossible where peft has no default."""
    if "default" not in words:
        return words
    if architecture not in DEFAULT_TARGETS:
        raise Impossible(f"--lora-targets default: no default of peft's is known for {architecture}; "
                         "name modules, or all-linear")
    return tuple(dict.fromkeys(part for word in words
                               for part in (DEFAULT_TARGETS[architecture] if word == "default" else (word,))))


LOWERED = ("lm_head", "embed_tokens", "wte", "wpe")


def lowered_by_trl(m: Structure, row: Row) -> bool:
    """Whether peft_module_casting_to_bf16 of TRL 0.19 (trainer/utils.py) finds this parameter in a module it casts.

    It goes by the names of modules: those that share a weight with `embed_tokens` or `lm_head` are cast with them. A
    module is cast where its weight is still fp32: a head's bias stays as it is beside the weight of an embedding cast
    before, and so does that of RoBERTa's head, a module without a weight, unless its decoder has it, too.
    """
    if "norm" in row.name:
        return False
    if row.name == "lm_head.bias":
        from peakmem.architectures import code_of

        tables = (r.name for r in all_rows(m, code_of(m.architecture, m.implementation)) if r.module == "embedding")
        cast_before = m.has("tied") and any(word in name for name in tables for word in LOWERED)
        return not cast_before and (row.module in LINEAR or m.has("tied"))
    read = ("shared.weight",) if row.reached else ()  # BART's is nobody's embedding where it is not tied
    shared = *read, *(("word_embeddings.weight",) if m.has("tied") and m.architecture != "bert" else ())
    return any(word in row.name for word in (*LOWERED, *shared))
