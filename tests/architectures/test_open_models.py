"""OLMo-2, StableLM, Falcon, BLOOM, MPT, Phi, Command-R, StarCoder2, GPT-BigCode, GPT-J, CodeGen, the real models."""

from __future__ import annotations

import json
from math import prod
from typing import Any

import pytest

from peakmem.architectures import code_of
from peakmem.architectures.definition import Row
from peakmem.errors import Impossible, Unreadable
from peakmem.estimate.interpret import interpret
from peakmem.estimate.layout import Dims, dims
from peakmem.estimate.replay import compiled, replay, value
from peakmem.estimate.settings import structure_of
from peakmem.readers.hf_config import from_config
from peakmem.setup import Setup
from peakmem.tables.resize import resize
from tests.reference_steps import DATA, differences, events_by_phase, ids_of, records

FAMILIES = ("olmo2", "stablelm", "falcon", "bloom", "phi", "cohere", "starcoder2", "gpt_bigcode", "gptj", "mpt",
            "codegen")

# Tiny models with every size different, traced in the same way as traced_steps.json.
TINY = {record["id"]: record for record in json.loads((DATA / "traced_open_models.json").read_text())}

SIZES = {
    "hidden_size": 48, "intermediate_size": 56, "num_hidden_layers": 3, "num_attention_heads": 6,
    "num_key_value_heads": 2, "vocab_size": 97, "max_position_embeddings": 64, "pad_token_id": 0,
}
SHORT = {"n_embd": 48, "n_layer": 3, "n_head": 6, "vocab_size": 97, "n_positions": 40}
FALCON = {
    "model_type": "falcon", "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6, "vocab_size": 97,
}
NEW = {"new_decoder_architecture": True, "num_kv_heads": 2}
BLOOM = {"model_type": "bloom", "hidden_size": 48, "n_layer": 3, "n_head": 6, "vocab_size": 97}
MPT = {"model_type": "mpt", "d_model": 48, "n_layers": 3, "n_heads": 6, "vocab_size": 97, "max_seq_len": 40}
VARIANTS: dict[str, dict[str, Any]] = {
    "olmo2": SIZES | {"model_type": "olmo2"},
    "olmo2, biases, tied": SIZES | {"model_type": "olmo2", "attention_bias": True, "tie_word_embeddings": True},
    "stablelm": SIZES | {"model_type": "stablelm"},
    "stablelm, a norm for each head": SIZES | {
        "model_type": "stablelm", "qk_layernorm": True, "use_parallel_residual": True, "use_qkv_bias": True,
    },
    "falcon": FALCON,
    "falcon, groups": FALCON | NEW,
    "falcon, groups, one norm": FALCON | NEW | {"num_ln_in_parallel_attn": 1, "tie_word_embeddings": False},
    "falcon, alibi, serial, biases": FALCON | {
        "alibi": True, "multi_query": False, "parallel_attn": False, "bias": True, "ffn_hidden_size": 31,
    },
    "bloom": BLOOM,
    "bloom, untied": BLOOM | {"tie_word_embeddings": False},
    "mpt": MPT,
    "mpt, untied": MPT | {"tie_word_embeddings": False, "attn_config": {"attn_pdrop": 0}},
    "phi": SIZES | {"model_type": "phi"},
    "phi, tied, norms on q and k": SIZES | {"model_type": "phi", "tie_word_embeddings": True, "qk_layernorm": True},
    "cohere": SIZES | {"model_type": "cohere"},
    "cohere, norms on q and k, biases, untied": SIZES | {
        "model_type": "cohere", "use_qk_norm": True, "attention_bias": True, "tie_word_embeddings": False,
    },
    "starcoder2": SIZES | {"model_type": "starcoder2", "sliding_window": 8},
    "starcoder2, without biases": SIZES | {"model_type": "starcoder2", "use_bias": False, "head_dim": 10},
    "gpt_bigcode": SHORT | {"model_type": "gpt_bigcode"},
    "gpt_bigcode, many heads": SHORT | {"model_type": "gpt_bigcode", "multi_query": False, "n_inner": 31},
    "codegen": SHORT | {"model_type": "codegen", "rotary_dim": 4, "n_head": 8, "num_attention_heads": 8},
    "codegen, one head a part, tied": SHORT | {
        "model_type": "codegen", "rotary_dim": 12, "num_attention_heads": 4, "n_head": 4, "tie_word_embeddings": True,
        "n_inner": 100,
    },
    "gptj": SHORT | {"model_type": "gptj", "rotary_dim": 4},
    "gptj, all of a head, tied": SHORT | {"model_type": "gptj", "rotary_dim": 8, "tie_word_embeddings": True},
}


def real_model(config: dict[str, Any]) -> Any:
    """transformers' own model, without memory."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    with torch.device("meta"):
        return transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**config))


def sides(shape: Dims, numbers: dict[str, Any]) -> tuple[int, ...]:
    return tuple(prod(value(letter.rstrip("'"), numbers) for letter in group) for group in shape)


@pytest.mark.parametrize("variant", VARIANTS)
def test_parameters_are_those_of_transformers(variant: str) -> None:
    """Name for name, shape for shape, in the order of definition; buffers too."""
    structure, numbers = structure_of(from_config(VARIANTS[variant]), Setup.of(sequence=16), unfold=True)
    ours = []
    for key, p in interpret(structure).parameters.items():
        layer = key.partition(".")[0] if p.full_name != key else ""
        ours.append((p.full_name.replace("*", layer), sides(p.dims, numbers)))
    real = real_model(VARIANTS[variant])
    assert ours == [(name, tuple(p.shape)) for name, p in real.named_parameters()]
    rows = [row for row in code_of(structure.architecture).define(structure) if isinstance(row, Row)]
    buffers = {row.name: sides(dims(row.shape), numbers) for row in rows if row.module == "buffer"}
    assert buffers == {name: tuple(b.shape) for name, b in real.named_buffers()}


@pytest.mark.parametrize("name", ids_of(*FAMILIES))
def test_reference_steps(name: str) -> None:
    assert differences(records()[name]) == {}


@pytest.mark.parametrize("name", TINY)
def test_tiny_steps(name: str) -> None:
    """Phases of the folded model, and every allocation of the unfolded one."""
    assert differences(TINY[name]) == {}
    for phase, (ours, want) in events_by_phase(TINY[name]).items():
        assert ours == want, phase


def test_every_family_is_traced() -> None:
    assert {record["config"]["model_type"] for record in TINY.values()} == set(FAMILIES)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("attention", ["auto", "eager"])
def test_generation_folds(variant: str, attention: str) -> None:
    """Prefill and decoding of n layers are those of one body, n times."""
    levels = []
    for unfold in (False, True):
        setup = Setup.of(run="inference", sequence=16, generate=8, precision="bf16", attention=attention)
        structure, numbers = structure_of(from_config(VARIANTS[variant]), setup, unfold=unfold)
        levels.append(replay(compiled(interpret(structure)), numbers))
    assert levels[0] == levels[1]


@pytest.mark.parametrize("kind", [*FAMILIES, "gemma2", "llama"])
def test_eager_is_what_has_no_fused_attention(kind: str) -> None:
    """attention auto means what from_config chooses when it is not told."""
    auto = pytest.importorskip("transformers.models.auto.modeling_auto")
    transformers = pytest.importorskip("transformers")
    model = getattr(transformers, auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[kind])
    kernel = structure_of(from_config({"model_type": kind}), Setup.of(precision="bf16"))[0].kernel()
    assert (kernel == "eager") == (not model._supports_sdpa)


def test_a_codegen_of_more_heads_has_more_in_each_part() -> None:
    model = from_config(VARIANTS["codegen"])
    wider = resize(model, hidden=96, heads=16)
    assert (wider.head_size, wider.sizes["as"]) == (6, 4)
    with pytest.raises(Impossible, match="multiple of 4"):
        resize(model, heads=6)


@pytest.mark.parametrize("kind", ["gptj", "codegen"])
def test_no_sequence_is_longer_than_the_table_of_sines(kind: str) -> None:
    model = from_config(VARIANTS[kind])
    structure_of(model, Setup.of(sequence=40))
    with pytest.raises(Impossible, match="40 positions"):
        structure_of(model, Setup.of(sequence=41))


def test_bloom_has_no_fused_attention() -> None:
    """transformers 5.24 refuses sdpa for it."""
    model = from_config(BLOOM)
    assert structure_of(model, Setup.of())[0].kernel() == "eager"
    with pytest.raises(Impossible, match="eager attention only"):
        structure_of(model, Setup.of(attention="flash"))


def test_broadcast_heads_leave_the_fused_kernels() -> None:
    """Falcon-7B hands one key/value head to scaled_dot_product_attention without enable_gqa."""
    setup = Setup.of(precision="bf16", sequence=16)
    kernels = [structure_of(from_config(config), setup)[0].kernel() for config in (FALCON, FALCON | NEW)]
    assert kernels == ["math", "efficient"]


@pytest.mark.parametrize(("config", "words"), [
    (FALCON | NEW | {"parallel_attn": False}, "parallel_attn"),
    (FALCON | NEW | {"num_kv_heads": 4}, "must divide"),
    (BLOOM | {"slow_but_exact": True, "pretraining_tp": 2}, "slow_but_exact"),
    (SHORT | {"model_type": "gptj", "rotary_dim": 10}, "rotary_dim"),
    (SHORT | {"model_type": "codegen", "rotary_dim": 4}, "multiple of 4"),
    (MPT | {"attn_config": {"clip_qkv": 6}}, "clip_qkv"),
    (SIZES | {"model_type": "stablelm", "partial_rotary_factor": 0.4}, "even number"),
])
def test_what_transformers_cannot_run_is_refused(config: dict[str, Any], words: str) -> None:
    with pytest.raises(Impossible, match=words):
        from_config(config)


def test_modules_that_are_interpreted_one_by_one_are_few() -> None:
    heads = {"hidden_size": 2**20, "num_attention_heads": 2**19, "num_key_value_heads": 2**19}
    with pytest.raises(Unreadable, match="at most 1,024"):
        from_config(SIZES | heads | {"model_type": "stablelm", "qk_layernorm": True})


def test_a_phi_file_with_its_first_names() -> None:
    """phi-msft: n_embd for hidden_size, rotary_dim for a share of the head, null for 4 × hidden."""
    old = {"model_type": "phi-msft", "n_embd": 96, "n_layer": 3, "n_head": 4, "n_head_kv": None, "n_inner": None,
           "rotary_dim": 10, "vocab_size": 97, "activation_function": "gelu_new"}
    new = {"model_type": "phi", "hidden_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4,
           "intermediate_size": 384, "partial_rotary_factor": 10.5 / 24, "vocab_size": 97}
    models = [from_config(config).changed(source="", notes=()) for config in (old, new)]
    assert models[0] == models[1]
    assert models[0].rotary_size == 10
