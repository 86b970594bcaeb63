"""Quantised weights: their bytes, and a training step on them against bitsandbytes' and peft's own code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from peakmem.errors import Impossible
from peakmem.estimate import estimate
from peakmem.estimate.interpret import interpret
from peakmem.estimate.packed import Packed
from peakmem.estimate.replay import size
from peakmem.estimate.settings import structure_of
from peakmem.estimate.stored import weight_bytes
from peakmem.model import Model
from peakmem.readers.hf_config import from_config
from peakmem.setup import FIELDS, Setup
from peakmem.tables.quantised import WORDS

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 131, "tie_word_embeddings": False,
}


@pytest.mark.parametrize("given", [
    dict(weights="nf4"),
    dict(weights="nf4-double"),
    dict(weights="nf4-double", checkpoint="full"),
    dict(weights="fp4", kbit_prepare=True),
    dict(weights="nf4-double", kbit_prepare=True, checkpoint="full"),
    dict(weights="nf4-double", precision="amp-bf16"),
    dict(weights="nf4-double", precision="amp-bf16", kbit_prepare="trl", checkpoint="full"),
    dict(weights="nf4-double", precision="amp-bf16", kbit_prepare=True, checkpoint="full"),
], ids=lambda given: "-".join(str(value) for value in given.values()))
def test_a_step_on_4_bit_weights_equals_the_real_layers(given: dict[str, Any]) -> None:
    pytest.importorskip("bitsandbytes")
    pytest.importorskip("peft")
    from tests.estimate.traced_module import estimated, traced

    usual = {"sequence": 24, "batch": 2, "precision": "bf16", "lora_rank": 8, "optimizer_implementation": "foreach"}
    setup = Setup.of(**usual | given)
    real, ours = traced(LLAMA, setup, lambda model: model), estimated(LLAMA, setup)
    for phase in ("forward", "backward", "optimizer", "clear"):
        assert ours[phase] == real[phase], phase


CONFIGS = Path(__file__).parents[1] / "data" / "configs"
TABLES = 64 + 4 + 1024  # bytes of the codes and the offset of each matrix, which published formulas leave out


def bytes_of(model: Model, **given: Any) -> tuple[int, int]:
    """Bytes of packed weights and of all, as they are before rounding."""
    structure, numbers = structure_of(model, Setup.of(**{"run": "inference", "sequence": 16} | given))
    return weight_bytes(structure, numbers)


@pytest.mark.parametrize("name, wanted", [
    ("llama-2-7b-gptq", 3_893_862_400), ("qwen2-7b-awq", 5_570_747_392), ("gpt-oss-20b", 13_761_264_768),
    ("llama-3.1-8b-bnb-nf4", 5_702_295_552 + 32 * 7 * TABLES),
])
def test_a_quantised_file_has_its_bytes(name: str, wanted: int) -> None:
    assert bytes_of(Model.read(CONFIGS / f"{name}.json"))[1] == wanted


def test_gpt_oss_120b_has_the_bytes_of_its_checkpoint() -> None:
    small = Model.read(CONFIGS / "gpt-oss-20b.json")
    large = small.changed(layers=36, experts=128, layer_kinds=("sliding", "full") * 18)
    assert bytes_of(large)[1] == 65_248_815_744


@pytest.mark.parametrize("scheme, wanted", [
    ("nf4", 64 * 192 / 2 + 4 * 64 * 192 / 64 + 64), ("fp4", 64 * 192 / 2 + 4 * 64 * 192 / 64 + 64),
    ("nf4-double", 64 * 192 / 2 + 64 * 192 / 64 + 4 * 1 + TABLES), ("int8", 64 * 192 + 4 * 192),
    ("fp8", 64 * 192 + 4), ("nvfp4", 64 * 192 / 2 + 64 * 192 / 16 + 8),
    ("awq", 64 * 192 / 2 + 192 * 2 + 192 / 2), ("gptq", 64 * 192 / 2 + 192 * 2 + 192 / 2 + 4 * 64),
])
def test_one_matrix_is_packed_as_its_scheme_says(scheme: str, wanted: float) -> None:
    structure, numbers = structure_of(from_config(LLAMA), Setup.of(run="inference", weights=scheme, sequence=8))
    tape = interpret(structure)
    found = next(p for p in tape.parameters.values() if p.full_name.endswith("up_proj.weight"))
    assert isinstance(found, Packed)
    assert sum(size(x.record.key, numbers) for x in found.parts if x.record) == wanted


def test_head_embedding_and_norms_are_not_packed_and_kbit_preparation_raises_them() -> None:
    runs = [Setup.of(weights="nf4", lora_rank=4, sequence=8, kbit_prepare=prepared) for prepared in (False, True)]
    plain, raised = (interpret(structure_of(from_config(LLAMA), run)[0]).parameters.values() for run in runs)
    for before, after in zip(plain, raised, strict=True):
        if isinstance(before, Packed) or "lora" in before.full_name:
            assert after.dtype == before.dtype
        else:
            assert (before.dtype, after.dtype) == ("bf16", "fp32"), before.full_name


def test_the_upcasts_of_mistral_are_those_of_the_thread() -> None:
    """cases.md A36: fp32 copies of embedding and head, 1024 MiB."""
    mistral = {**LLAMA, "hidden_size": 4096, "num_attention_heads": 32, "vocab_size": 32768}
    kinds = [estimate(from_config(mistral), weights="nf4", lora_rank=4, sequence=8, kbit_prepare=prepared).lines
             for prepared in (True, False)]
    sizes = [sum(line.bytes for line in lines if line.name in ("model.embed_tokens.weight", "lm_head.weight"))
             for lines in kinds]
    assert sizes == [1024 * 2**20, 512 * 2**20]


@pytest.mark.parametrize("given, words", [
    (dict(weights="nf4"), "--lora-rank"), (dict(weights="awq", lora_rank=4), "inference"),
    (dict(weights="mxfp4", run="inference"), "experts"), (dict(kbit_prepare=True, lora_rank=4), "--kbit-prepare"),
    (dict(weights="nf4", lora_rank=4, shard="zero3", gpus=2), "zero3"), (dict(weights="fp16"), "--precision"),
    (dict(weights="nf4", lora_rank=4, implementation="fused"), "transformers"),
])
def test_what_no_stack_does_is_refused_in_one_line(given: dict[str, Any], words: str) -> None:
    with pytest.raises(Impossible, match=words) as error:
        estimate(from_config(LLAMA), sequence=8, **given)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("levers", [
    dict(shard="fsdp2", gpus=4), dict(shard="zero2", gpus=4), dict(checkpoint="selective"), dict(offload="optimizer"),
    dict(accumulation=3), dict(optimizer="adamw8bit"), dict(loss="chunked", loss_chunks=2),
], ids=str)
def test_levers_go_with_packed_weights(levers: dict[str, Any]) -> None:
    base = dict(weights="nf4-double", lora_rank=4, sequence=16, precision="bf16")
    packed, plain = (estimate(from_config(LLAMA), **{**base, **levers, "weights": word})
                     for word in ("nf4-double", "auto"))
    assert packed.parameters == plain.parameters
    assert packed.kinds["weights"].largest < plain.kinds["weights"].largest or levers.get("shard")


def test_full_training_of_a_quantised_file_takes_it_unpacked_and_says_so() -> None:
    quantised = from_config({**LLAMA, "quantization_config": {"quant_method": "awq", "bits": 4}})
    ledger = estimate(quantised, sequence=8)
    assert ledger.phases == estimate(from_config(LLAMA), sequence=8).phases
    assert any("awq" in note and "--lora-rank" in note for note in ledger.notes)


def test_the_setting_and_the_table_have_the_same_words() -> None:
    assert FIELDS["weights"]["choices"] == WORDS


def test_a_file_that_packs_some_layers_only_is_refused() -> None:
    config = {**LLAMA, "quantization_config": {"quant_method": "awq", "bits": 4,
                                               "modules_to_not_convert": ["model.layers.0.self_attn"]}}
    with pytest.raises(Impossible, match="some layers"):
        estimate(from_config(config), run="inference", sequence=8)
    everywhere = [f"model.layers.{i}.self_attn" for i in range(3)]
    config["quantization_config"]["modules_to_not_convert"] = everywhere
    assert bytes_of(from_config(config))[0] < bytes_of(from_config(LLAMA), weights="awq")[0]


@pytest.mark.parametrize("given", [
    dict(weights="int8"), dict(weights="int8", checkpoint="full"), dict(weights="nf4", stack="bitsandbytes-0.42"),
])
def test_what_a_node_keeps_as_its_attribute_lives_until_the_loss_goes(given: dict[str, Any]) -> None:
    """Backward empties saved tensors, not `ctx.tensors = (…, A)`: nothing is made after the last of them goes."""
    structure, _ = structure_of(from_config(LLAMA), Setup.of(lora_rank=4, sequence=32, precision="bf16", **given))
    tape = interpret(structure)
    kept = {i for i, record in enumerate(tape.records) if any("bitsandbytes keeps" in why for why in record.why)}
    begin = next(i for i, event in enumerate(tape.events) if getattr(event, "name", "") == "backward")
    end = next(i for i, event in enumerate(tape.events) if getattr(event, "name", "") == "optimizer")
    backward = [event for event in tape.events[begin:end] if type(event) is int]
    forward = {event for event in tape.events[:begin] if type(event) is int and event >= 0} & kept
    assert forward
    last_made = max(i for i, event in enumerate(backward) if event >= 0)
    assert all(backward.index(~event) > last_made for event in forward)


def test_a_held_graph_keeps_them_through_the_next_forward() -> None:
    """A loop that still holds the logits holds the graph, and the graph what its nodes keep."""
    run = dict(weights="nf4", stack="bitsandbytes-0.42", lora_rank=4, sequence=512, precision="bf16")
    dropped, held, first = (estimate(from_config(LLAMA), **run, **given) for given in (
        {}, {"outputs": "logits"}, {"outputs": "logits", "step": "first"}))
    inputs = sum(line.bytes * line.count for line in dropped.lines if "bitsandbytes keeps" in line.why)
    assert held.phases["step_start"] - first.phases["step_start"] > inputs > 0


def test_litgpt_packs_the_head_from_fp16() -> None:
    """lightning's plugin replaces every linear layer; a matrix is fp16 when dequantised, then copied."""
    given = dict(weights="nf4", lora_rank=4, lora_targets=("query",), sequence=32, precision="bf16", loss="pieces",
                 implementation="litgpt")
    ledger = estimate(from_config(LLAMA), **given)
    names = {line.name for line in ledger.lines}
    assert "lm_head.weight/packed" in names
    assert {"lm_head/dequantised weight", "lm_head/dequantised weight in bf16"} <= names


def test_an_8_bit_product_keeps_its_input_and_dequantises_in_backward() -> None:
    """What bitsandbytes' MatMul8bitLt does with real tensors, recorded: the matrix, its scales, the product."""
    structure, numbers = structure_of(from_config(LLAMA), Setup.of(
        weights="int8", lora_rank=4, precision="bf16", sequence=32, checkpoint="full"), unfold=True)
    tape = interpret(structure)
    part = "model.layers.*.mlp.up_proj.base_layer"
    made = [(record.name.rpartition("/")[2], size(record.key, numbers)) for record in tape.records
            if record.name.startswith(f"{part}/") and "packed" not in record.name]
    backward = [row for row in made if row[0] in ("dequantised weight", "row scales over 127", "input gradient")]
    assert backward[:3] == [("dequantised weight", 2 * 64 * 192), ("row scales over 127", 4 * 192),
                            ("input gradient", 2 * 32 * 64)]
    given = dict(lora_rank=4, precision="bf16", sequence=512, checkpoint="full")
    ledgers = [estimate(from_config(LLAMA), weights=word, **given) for word in ("int8", "nf4")]
    kept = [ledger.phases["after_forward"] - ledger.phases["step_start"] for ledger in ledgers]
    assert kept[0] > kept[1]
