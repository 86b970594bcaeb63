"""GLM-5, Gemma 4, Qwen3.5 with its tower, DeepSeek-V4, Nemotron-NAS: parameters, traced steps, generation, caches."""

from __future__ import annotations

import json
from typing import Any

import pytest

from peakmem import estimate
from peakmem.errors import Impossible, Unreadable
from peakmem.estimate.interpret import interpret
from peakmem.estimate.replay import compiled, replay, size
from peakmem.estimate.settings import structure_of
from peakmem.readers.hf_config import from_config
from peakmem.setup import Setup
from tests.architectures.test_decoders import real_model, sides
from tests.generations import compared, model_of, setup_of
from tests.reference_steps import DATA, differences, events_by_phase

RECORDS = json.loads((DATA / "traced_newest.json").read_text())
STEPS = {record["id"]: record for record in RECORDS["steps"]}
GENERATION = {record["id"]: record for record in RECORDS["generation"]}

BASE: dict[str, Any] = {"hidden_size": 40, "num_hidden_layers": 4, "vocab_size": 97, "num_attention_heads": 4,
                        "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
GLM: dict[str, Any] = {
    **BASE, "model_type": "glm_moe_dsa", "intermediate_size": 56, "kv_lora_rank": 12, "qk_nope_head_dim": 6,
    "qk_rope_head_dim": 4, "v_head_dim": 14, "n_routed_experts": 8, "num_experts_per_tok": 2, "q_lora_rank": 16,
    "moe_intermediate_size": 20, "first_k_dense_replace": 1, "index_head_dim": 10, "index_n_heads": 3, "index_topk": 20}
GEMMA: dict[str, Any] = {**BASE, "model_type": "gemma4_text", "intermediate_size": 56, "num_key_value_heads": 2,
                         "head_dim": 12, "global_head_dim": 20, "hidden_size_per_layer_input": 0,
                         "layer_types": ["sliding_attention", "full_attention"] * 2}
TOWER: dict[str, Any] = {"hidden_size": 24, "intermediate_size": 32, "patch_size": 4}
WHOLE: dict[str, Any] = {
    "model_type": "gemma4", "text_config": GEMMA, "vision_config": {
        **TOWER, "model_type": "gemma4_vision", "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 12,
        "num_key_value_heads": 2, "position_embedding_size": 50, "use_clipped_linears": True, "standardize": True}}
QWEN: dict[str, Any] = {
    "model_type": "qwen3_5", "vision_config": {**TOWER, "model_type": "qwen3_5_vision", "depth": 2, "num_heads": 2,
                                               "num_position_embeddings": 16, "out_hidden_size": 40},
    "text_config": {"model_type": "qwen3_5_text", **BASE, "intermediate_size": 56, "num_key_value_heads": 2,
                    "head_dim": 16, "linear_key_head_dim": 6, "linear_value_head_dim": 10, "linear_num_key_heads": 2,
                    "linear_num_value_heads": 4}}
V4: dict[str, Any] = {
    **BASE, "model_type": "deepseek_v4", "num_hidden_layers": 5, "head_dim": 24, "qk_rope_head_dim": 8,
    "q_lora_rank": 20, "o_groups": 2, "o_lora_rank": 12, "moe_intermediate_size": 16, "n_routed_experts": 6,
    "num_experts_per_tok": 2, "index_head_dim": 16, "index_n_heads": 3, "num_hash_layers": 1, "hc_mult": 3,
    "compress_ratios": [0, 4, 128, 4, 0, 0]}
VARIANTS: dict[str, dict[str, Any]] = {
    "glm": GLM, "glm, shared indexers, biases": GLM | {"index_topk_freq": 2, "attention_bias": True, "n_group": 2},
    "gemma 4": GEMMA,
    "gemma 4, keys as values, experts": GEMMA | {
        "attention_k_eq_v": True, "num_global_key_value_heads": 1, "enable_moe_block": True, "num_experts": 4,
        "top_k_experts": 2, "moe_intermediate_size": 20, "attention_bias": True},
    "gemma 4 and tower": WHOLE, "qwen 3.5 and tower": QWEN, "deepseek v4": V4,
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_parameters_are_those_of_transformers(variant: str) -> None:
    config = VARIANTS[variant]
    setup = Setup.of(sequence=16, run="inference")
    structure, numbers = structure_of(from_config(config), setup, unfold=True)
    ours: dict[str, tuple[int, ...]] = {}
    towers = sum(tower.layers for tower in from_config(config).towers)
    for key, p in interpret(structure).parameters.items():
        layer = int(key.partition(".")[0]) if p.full_name != key else 0
        number = layer - (0 if ".vision_tower." in key or ".visual." in key else towers)
        ours[p.full_name.replace("*", str(number))] = sides(p.dims, numbers)
    assert ours == {name: tuple(p.shape) for name, p in built(config).named_parameters()}


def built(config: dict[str, Any]) -> Any:
    """The class that has the tower, where the file has one."""
    if "vision_config" not in config:
        return real_model(config)
    import torch
    import transformers

    given = dict(config)
    with torch.device("meta"):
        return transformers.AutoModelForImageTextToText.from_config(
            transformers.AutoConfig.for_model(given.pop("model_type"), **given))


@pytest.mark.parametrize("name", STEPS)
def test_every_allocation_of_a_step(name: str) -> None:
    assert differences(STEPS[name]) == {}
    for phase, (ours, want) in events_by_phase(STEPS[name]).items():
        assert ours == want, phase


@pytest.mark.parametrize("name", GENERATION)
def test_every_allocation_of_generation(name: str) -> None:
    """Prompt, first and last step; windows that fill up on the way; indexers that choose fewer than there are."""
    for phase, (ours, want) in compared(GENERATION[name]).items():
        assert ours == want, phase


@pytest.mark.parametrize("name", GENERATION)
def test_generation_folds(name: str) -> None:
    levels = []
    for unfold in (False, True):
        structure, numbers = structure_of(model_of(GENERATION[name]), setup_of(GENERATION[name]), unfold=unfold)
        levels.append(replay(compiled(interpret(structure)), numbers))
    assert levels[0] == levels[1]


def test_no_gradient_and_no_state_for_what_chooses() -> None:
    """The indexers want gradients, in name; none reaches them, so no optimizer has a state for them."""
    ledger = estimate(from_config(GLM), sequence=32, precision="fp32", optimizer="adamw")
    lines = [line.name for line in ledger.lines if ".indexer." in line.name]
    assert lines and not [name for name in lines if "exp_avg" in name or name.endswith("gradient")]


def test_a_tower_on_text_alone_gets_no_gradient() -> None:
    ledger = estimate(from_config(WHOLE), sequence=32, precision="fp32", optimizer="adamw")
    tower = [line for line in ledger.lines if "vision_tower" in line.name or "embed_vision" in line.name]
    assert tower and {line.kind for line in tower} == {"weights"}


def test_a_file_without_the_tower_is_its_text_part() -> None:
    model = from_config({"model_type": "gemma4", "text_config": GEMMA})
    assert model.architecture == "gemma4_text" and not model.towers
    assert any("text part only" in note for note in model.notes)


@pytest.mark.parametrize("tokens", [3, 16, 250])
def test_caches_of_deepseek_v4_have_the_shapes_of_transformers(tokens: int) -> None:
    import torch
    import transformers

    given = dict(V4)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(
            transformers.AutoConfig.for_model(given.pop("model_type"), **given), dtype=torch.bfloat16).eval()
    with torch.no_grad():
        cache = model(input_ids=torch.empty(2, tokens, dtype=torch.int64, device="meta"), use_cache=True).cache
    want = sum(x.numel() * x.itemsize for layer in cache.layers for x in tensors(layer))
    setup = Setup.of(run="inference", precision="bf16", batch=2, sequence=tokens, generate=1)
    structure, numbers = structure_of(from_config(V4), setup, unfold=True)
    assert sum(size(x.storage.record.key, numbers) for x in interpret(structure).states.values() if x.storage) == want


def tensors(layer: Any) -> list[Any]:
    """What a cache layer holds, each tensor once."""
    found: dict[int, Any] = {}
    for value in vars(layer).values():
        for x in value.values() if isinstance(value, dict) else (value,):
            if hasattr(x, "numel"):
                found[id(x)] = x
    return list(found.values())


def nas(*blocks: tuple[int | None, float | None], **given: Any) -> dict[str, Any]:
    """A Nemotron-NAS of such blocks: heads in a group, times of the feed-forward; None: left out."""
    return {"model_type": "nemotron-nas", "hidden_size": 256, "num_hidden_layers": len(blocks), "vocab_size": 97,
            "num_attention_heads": 4, "block_configs": [
                {"attention": {"n_heads_in_group": group, "no_op": group is None},
                 "ffn": {"ffn_mult": times, "no_op": times is None}} for group, times in blocks], **given}


def test_equal_blocks_are_a_llama() -> None:
    llama = {"model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 3,
             "vocab_size": 97, "num_attention_heads": 4, "num_key_value_heads": 2}
    for run in ({"run": "training"}, {"run": "inference", "generate": 9}):
        ours, theirs = (estimate(from_config(config), sequence=33, precision="bf16", **run)
                        for config in (nas(*[(2, 3.0)] * 3), llama))
        assert (ours.phases, ours.parameters) == (theirs.phases, theirs.parameters)


def test_blocks_that_are_left_out_have_neither_weights_nor_caches() -> None:
    run = {"run": "inference", "sequence": 32, "precision": "bf16", "kv_cache": "static"}
    whole = estimate(from_config(nas((2, 3.0), (2, 3.0))), **run)
    part = estimate(from_config(nas((2, 3.0), (None, 1.0), (4, None), (2, 3.0))), **run)
    assert part.parameters.total - whole.parameters.total == 256 + 3 * 256 * 256 + 256 + 2 * 256 * 256 + 2 * 256 * 64
    assert part.kinds["kv_cache"].largest * 4 == whole.kinds["kv_cache"].largest * 5
    estimate(from_config(nas((2, 3.0), (None, 1.0), (4, None), (1, 3.0))), sequence=32)


@pytest.mark.parametrize("config, words", [
    (nas((3, 3.0)), "n_heads_in_group"), (nas((2, True)), "ffn_mult"), (nas((None, 1.0)), "every layer"),
    (nas((2, 1.0), num_hidden_layers=2), "2 layers"),
    (V4 | {"compress_ratios": [0, 7]}, "0, 4 or 128"), (V4 | {"o_groups": 5}, "o_groups"),
    (GLM | {"indexer_types": ["shared"] * 4}, "first layer"), (GLM | {"q_lora_rank": None}, "q_lora_rank"),
    (GEMMA | {"num_kv_shared_layers": 2}, "keys and values from others"),
    (WHOLE | {"audio_config": {}}, "audio_config"),
])
def test_what_cannot_be_is_refused(config: dict[str, Any], words: str) -> None:
    with pytest.raises((Impossible, Unreadable), match=words):
        from_config(config)


def test_training_of_deepseek_v4_is_refused() -> None:
    with pytest.raises(Impossible, match="--run inference only"):
        estimate(from_config(V4), sequence=16)
