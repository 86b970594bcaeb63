"""Estimate and trace agree to the byte: a small grid, one point for every family, and points where the two once
differed. All of it: make agreement."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from peakmem.errors import Impossible
from peakmem.estimate import program_of
from peakmem.estimate.interpret import interpret
from peakmem.estimate.node import Node

if not (find_spec("torch") and find_spec("transformers")):
    pytest.skip("needs torch and transformers", allow_module_level=True)

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
import agreement
import agreement_grid

from peakmem.trace.process import Worker

CONFIGS = agreement_grid.configs()


def first(family: str) -> dict[str, object]:
    """The first configuration of a family."""
    return next(config for config in CONFIGS if config["model_type"] == family)


def first_of_families() -> dict[str, agreement.Point]:
    """One point of each family, with whatever settings are drawn."""
    return {family: agreement_grid.possible(first(family), f"{family}-first-") for family in agreement_grid.FAMILIES}


LLAMA, T5, VIT, BERT, MPT = map(first, ("llama", "t5", "vit", "bert", "mpt"))
DEEPSEEK_V2, DEEPSEEK_V3, LLAMA4 = map(first, ("deepseek_v2", "deepseek_v3", "llama4_text"))
PACKED = {"lora_rank": 4, "lora_dropout": 0.1, "attention": "eager"}
ROUTED = next(config for config in CONFIGS if config.get("output_router_logits"))
RMSPROP = {"optimizer": "rmsprop", "precision": "bf16"}
LONGROPE = agreement_grid.MORE[-1]
FIRST = first_of_families()
GRID = [
    agreement.Point(name, config, settings)
    for name, config, settings in (
        (
            "deit, one picture: the gradients of both tokens lie in one tensor",
            first("deit") | {"num_hidden_layers": 2},
            {"precision": "bf16", "set_to_none": False, "optimizer": "momentum", "accumulation": 3},
        ),
        ("lion in one kernel", LLAMA, {"optimizer": "lion", "optimizer_implementation": "fused", "precision": "fp32"}),
        ("rmsprop has no fused form", LLAMA, {**RMSPROP, "optimizer_implementation": "fused"}),
        (
            "FSDP2 of one layer with adapters: its unit ends with the root's",
            first("qwen3") | {"num_hidden_layers": 1},
            {"precision": "fp32", "sequence": 18, "shard": "fsdp2", "gpus": 4, "lora_rank": 4},
        ),
        (
            "FSDP2 of three layers, the first frozen: the last third is empty",
            LLAMA | {"num_hidden_layers": 3},
            {"precision": "mixed", "sequence": 18, "shard": "fsdp2", "gpus": 4, "frozen_layers": 1, "accumulation": 2},
        ),
        ("a kernel that never drops", first("ernie4_5"), {"precision": "fp32", "attention": "eager", "dropout": 0.1}),
        ("whisper", first("whisper"), {"precision": "amp-bf16", "sequence": 13, "accumulation": 2}),
        ("clip", first("clip"), {"precision": "fp32", "sequence": 11, "checkpoint": "full"}),
        ("resnet, whose head is in a list, too", first("resnet"), {"precision": "bf16", "accumulation": 2}),
        ("positions saved by pictures", first("qwen3_vl"), {"precision": "bf16", "sequence": 64}),
        (
            "a router packed from fp32, whose input is no longer raised",
            first("hunyuan_v1_moe"),
            {"precision": "bf16", "sequence": 18, "lora_rank": 4, "weights": "nf4-double"},
        ),
        (
            "selective: what a layer that no gradient reaches keeps",
            agreement_grid.recorded(["llava"])[-1],
            {"precision": "bf16", "checkpoint": "selective", "checkpoint_save": ("mm",), "sequence": 64},
        ),
        ("one token of mamba", first("mamba"), {"precision": "amp-bf16", "sequence": 1}),
        ("mamba's sums in fp32", first("mamba") | {"residual_in_fp32": True}, {"precision": "bf16", "sequence": 9}),
        ("vit, one picture, zeroed gradients", VIT, {"precision": "fp32", "set_to_none": False}),
        (
            "roberta, FSDP2: a bias without a gradient",
            next(config for config in CONFIGS if config["model_type"] == "roberta") | {"tie_word_embeddings": False},
            {"precision": "mixed", "sequence": 18, "shard": "fsdp2", "gpus": 4, "set_to_none": False},
        ),
        ("the delta net in whole chunks", first("qwen3_5_text"), {"precision": "fp32", "sequence": 128, "batch": 2}),
        (
            "one token under adapters, products kept",
            next(config for config in CONFIGS if config["model_type"] == "qwen3_moe"),
            {"precision": "bf16", "sequence": 1, "batch": 3, "lora_rank": 8, "checkpoint": "selective",
             "checkpoint_save": ("mm",)},
        ),
        ("t5, one sequence", T5, {"precision": "bf16", "sequence": 23, "target": 9}),
        (
            "t5, biases of the encoder frozen, those of the decoder not",
            T5 | {"num_layers": 2, "num_decoder_layers": 2},
            {"precision": "amp-bf16", "sequence": 59, "target": 21, "frozen_layers": 1, "gpu": "H100"},
        ),
        (
            "t5, one sequence, one decoder layer run again: zeros beside the product get its gradient",
            T5 | {"num_layers": 1, "num_decoder_layers": 1},
            {"precision": "fp16", "sequence": 37, "target": 22, "attention": "eager", "checkpoint": "full"},
        ),
        ("t5, FSDP2", T5, {"precision": "fp32", "sequence": 25, "batch": 2, "shard": "fsdp2", "gpus": 8}),
        ("routers' loss unused", ROUTED, {"precision": "bf16", "sequence": 27, "loss": "sum", "accumulation": 2}),
        (
            "llama, FSDP2, clipped, one synchronisation",
            LLAMA,
            {"precision": "mixed", "sequence": 29, "batch": 2, "shard": "fsdp2", "gpus": 1024, "clip": True,
             "accumulation": 3, "sync_each_batch": False},
        ),
        (
            "bert, FSDP2: parameters beside modules",
            BERT,
            {"precision": "mixed", "sequence": 21, "batch": 2, "shard": "fsdp2", "gpus": 8, "set_to_none": False},
        ),
        (
            "math attention and kept bmm",
            LLAMA,
            {"precision": "fp32", "sequence": 19, "checkpoint": "selective", "checkpoint_save": ("bmm",)},
        ),
        (
            "one token, wide heads",
            first("gemma") | {"head_dim": 264, "num_key_value_heads": 2, "num_attention_heads": 8},
            {"precision": "bf16", "sequence": 1, "batch": 3, "attention": "math"},
        ),
        (
            "a short convolution that is cast anew",
            first("qwen3_next"),
            {"precision": "amp-bf16", "sequence": 52, "batch": 2, "accumulation": 2},
        ),
        (
            "packed weights, more rows than a kernel reads them for, in fp16",
            LLAMA,
            {**PACKED, "precision": "fp16", "sequence": 51, "batch": 4, "weights": "nf4-double"},
        ),
        (
            "packed weights, fewer rows",
            first("gpt2"),
            {**PACKED, "precision": "mixed", "sequence": 26, "batch": 2, "weights": "fp4-double"},
        ),
        (
            "what TRL casts back, by the names of modules",
            first("roberta"),
            {**PACKED, "precision": "amp-bf16", "sequence": 24, "weights": "nf4", "kbit_prepare": "trl"},
        ),
        (
            "a raised embedding beside its scale, which stays a buffer of 16 bits",
            first("gemma"),
            {**PACKED, "precision": "amp-bf16", "sequence": 22, "weights": "nf4", "kbit_prepare": "yes"},
        ),
        (
            "t5: an embedding that TRL casts back by another name",
            T5,
            {**PACKED, "precision": "amp-bf16", "sequence": 15, "weights": "fp4", "kbit_prepare": "trl"},
        ),
        (
            "raised biases of packed layers are cast back in the first forward",
            first("starcoder2"),
            {**PACKED, "precision": "fp16", "sequence": 21, "batch": 2, "weights": "nf4-double", "kbit_prepare": "yes",
             "step": "first", "accumulation": 2},
        ),
        (
            "a head's bias beside the weight of an embedding that TRL has cast before",
            first("phi") | {"tie_word_embeddings": True},
            {**PACKED, "precision": "amp-bf16", "sequence": 18, "weights": "nf4", "kbit_prepare": "trl"},
        ),
        (
            "a head's bias that TRL casts back with its weight",
            first("phi") | {"tie_word_embeddings": False},
            {**PACKED, "precision": "amp-bf16", "sequence": 18, "weights": "nf4", "kbit_prepare": "trl"},
        ),
        (
            "an embedding that no stack reads stays as kbit preparation left it",
            agreement_grid.recorded(["bart"])[0] | {"tie_word_embeddings": False},
            {**PACKED, "precision": "amp-bf16", "sequence": 14, "target": 9, "weights": "fp4", "kbit_prepare": "trl"},
        ),
        (
            "pictures follow a raised convolution",
            first("dinov2"),
            {**PACKED, "precision": "amp-fp16", "batch": 3, "weights": "fp4", "kbit_prepare": "yes"},
        ),
        (
            "queries of a raised model, cast for the kernel alone",
            LLAMA,
            {"lora_rank": 4, "precision": "amp-bf16", "sequence": 20, "batch": 2, "weights": "nf4",
             "kbit_prepare": "yes"},
        ),
        (
            "cuDNN without a gradient makes no logsumexp",
            LLAMA | {"num_hidden_layers": 2},
            {"lora_rank": 4, "lora_targets": ("o_proj",), "precision": "bf16", "sequence": 45, "batch": 3,
             "attention": "cudnn", "gpu": "H100"},
        ),
        (
            "channels first: the gradient of a packed product is copied for bmm",
            first("convnext"),
            {**PACKED, "precision": "bf16", "batch": 3, "weights": "nf4-double", "loss": "sum"},
        ),
        (
            "masks in the order of a set of words",
            LLAMA4 | {"num_hidden_layers": 4, "attention_chunk_size": 16},
            {"precision": "bf16", "sequence": 50, "batch": 2},
        ),
        (
            "states of a bias without a gradient",
            first("roberta") | {"tie_word_embeddings": False},
            {"precision": "bf16", "sequence": 14, "optimizer": "adagrad", "step": "first"},
        ),
        (
            "8-bit tables come with the first parameter that has codes",
            LLAMA | {"num_hidden_layers": 1, "hidden_size": 40, "intermediate_size": 136, "num_attention_heads": 4,
                     "num_key_value_heads": 2, "vocab_size": 71},
            {"precision": "bf16", "sequence": 20, "optimizer": "adamw-8bit", "step": "first"},
        ),
        ("one token of a delta net", first("qwen3_next"), {"precision": "fp32", "sequence": 1, "batch": 3}),
        (
            "gemma4, FSDP2: a scalar in fp32",
            agreement_grid.recorded(["gemma4_text"])[0],
            {"precision": "mixed", "sequence": 30, "batch": 2, "shard": "fsdp2", "gpus": 4},
        ),
        (
            "xlm-roberta, FSDP2: a matrix met in the head",
            agreement_grid.recorded(["xlm-roberta"])[0],
            {"precision": "mixed", "sequence": 12, "batch": 3, "shard": "fsdp2", "gpus": 4},
        ),
        (
            "xlm-roberta: the name under which the head's matrix is met",
            agreement_grid.recorded(["xlm-roberta"])[0],
            {"precision": "fp32", "sequence": 13, "freeze": "embed", "optimizer_implementation": "loop"},
        ),
        (
            "nemotron_h is never tied",
            agreement_grid.recorded(["nemotron_h"])[0] | {"tie_word_embeddings": True},
            {"precision": "bf16", "sequence": 22},
        ),
        (
            "places of pictures' features",
            agreement_grid.recorded(["llava"])[0],
            {"precision": "fp32", "sequence": 70, "batch": 2, "optimizer": "sgd"},
        ),
        ("longrope keeps a table", LONGROPE, {"precision": "amp-bf16", "sequence": 31, "batch": 2, "clip": True}),
        (
            "one token, heads of values with a letter of their own",
            DEEPSEEK_V3 | {"qk_nope_head_dim": 16, "qk_rope_head_dim": 16, "v_head_dim": 32, "num_hidden_layers": 2},
            {"precision": "fp16", "batch": 4, "sequence": 1, "loss": "sum"},
        ),
        (
            "FSDP2 casts no complex table",
            LLAMA4 | {"head_dim": 24, "num_hidden_layers": 3},
            {"precision": "mixed", "sequence": 35, "batch": 2, "shard": "fsdp2", "gpus": 4, "checkpoint": "full"},
        ),
        (
            "norms of gradients in two dtypes under masters in one",
            DEEPSEEK_V2 | {"n_routed_experts": 4, "n_group": 2},
            {"precision": "mixed", "sequence": 21, "clip": True, "optimizer": "adam"},
        ),
        (
            "first momentum buffers, one dtype after another",
            DEEPSEEK_V3 | {"n_routed_experts": 4, "hidden_size": 64},
            {"precision": "bf16", "sequence": 9, "optimizer": "nesterov", "optimizer_implementation": "foreach",
             "step": "first"},
        ),
        (
            "adamax lets one dtype's list go before the next",
            DEEPSEEK_V2 | {"n_routed_experts": 4, "n_group": 2, "vocab_size": 301},
            {"precision": "fp16", "sequence": 11, "optimizer": "adamax", "optimizer_implementation": "foreach"},
        ),
        ("mpt, dropout everywhere", MPT, {"precision": "bf16", "sequence": 17, "batch": 3, "dropout": 0.2}),
    )
]


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    """A process with torch, shared by all points."""
    with Worker() as worker:
        yield worker


@pytest.mark.parametrize("point", [pytest.param(point, id=point.name) for point in (*FIRST.values(), *GRID)])
def test_a_point_agrees(worker: Worker, point: agreement.Point) -> None:
    assert agreement.compared(worker, point) == (0, "")


def test_a_second_run_that_casts_more_is_refused_by_both(worker: Worker) -> None:
    """autocast's copy of the zeros that T5's cross-attention adds: made once in forward, in each layer's second run."""
    settings = {**PACKED, "attention": "auto", "precision": "amp-fp16", "sequence": 12, "target": 7, "weights": "nf4",
                "kbit_prepare": "yes", "checkpoint": "selective", "checkpoint_save": ("mm",)}
    alone, shared = (agreement.Point("", T5 | {"num_layers": 1, "num_decoder_layers": n}, settings) for n in (1, 3))
    assert agreement.compared(worker, alone) == (0, "")
    with pytest.raises(Impossible, match="selective"):
        shared.estimate()
    with pytest.raises(RuntimeError, match="_to_copy"):
        worker.call(agreement.traced, shared.setting())


def test_half_of_the_experts_first_matrix_is_refused_by_both(worker: Worker) -> None:
    settings = {**PACKED, "lora_dropout": -1.0, "precision": "bf16", "sequence": 8, "lora_targets": ("up_proj",)}
    point = agreement.Point("", next(c for c in CONFIGS if c["model_type"] == "qwen3_moe"), settings)
    with pytest.raises(Impossible, match="gate_proj and up_proj"):
        point.estimate()
    with pytest.raises(ValueError, match="without also targeting"):
        worker.call(agreement.traced, point.setting())


def test_all_levers_are_in_the_grid() -> None:
    """The whole grid has every value of every axis, and every family."""
    drawn = [agreement_grid.settings(LLAMA if i % 2 else T5, str(i))[1] for i in range(400)]
    seen = {(name, value) for settings in drawn for name, value in settings.items()}
    wanted = {(name, value) for name, values in agreement_grid.AXES.items() for value in values}
    assert {(name, value) for name, value in wanted if name not in ("tied", "layers")} <= seen
    assert set(FIRST) == set(agreement_grid.FAMILIES)


def test_one_wrong_rule_is_seen(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """silu saves its input: an engine that forgets this is off in every phase that matters."""
    point = agreement.Point("planted", LLAMA, {"precision": "bf16", "batch": 2, "sequence": 33})
    assert agreement.compared(worker, point) == (0, "")
    kept = Node.saves

    def forgets(node: Node, *arguments: object, **options: object) -> None:
        if node.op != "silu":
            kept(node, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(Node, "saves", forgets)
    for cached in (interpret, program_of):
        cached.cache_clear()
    try:
        off, told = agreement.compared(worker, point)
    finally:
        for cached in (interpret, program_of):
            cached.cache_clear()
    assert off > 0
    assert "after_forward" in told
    assert "F2 activations" in told
