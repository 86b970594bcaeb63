"""Frozen parameters and adapters. The traced steps stand in test_optimizers.py; here is what users are told."""

from __future__ import annotations

from typing import Any

import pytest

from peakmem.errors import Impossible
from peakmem.estimate import estimate
from peakmem.estimate.interpret import interpret
from peakmem.estimate.parameters import DEFAULT_TARGETS
from peakmem.estimate.replay import compiled, replay
from peakmem.estimate.settings import structure_of
from peakmem.ledger import Ledger
from peakmem.readers import hf_config
from peakmem.readers.hf_config import from_config
from peakmem.setup import Setup

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 6,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 131, "tie_word_embeddings": False,
}
FAMILIES = {
    "llama": LLAMA,
    "gpt2": {"model_type": "gpt2", "n_embd": 48, "n_layer": 6, "n_head": 3, "vocab_size": 131},
    "mixtral": LLAMA | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2},
    "gemma3_text": LLAMA | {"model_type": "gemma3_text", "head_dim": 16, "sliding_window": 8,
                            "num_hidden_layers": 13},
}


def run(config: dict[str, Any] = LLAMA, **given: Any) -> Ledger:
    return estimate(from_config(config), sequence=16, precision="bf16", **given)


def names(ledger: Ledger, kind: str, end: str = "") -> set[str]:
    return {line.name for line in ledger.lines if line.kind == kind and line.name.endswith(end)}


def test_frozen_parameters_have_neither_gradient_nor_states() -> None:
    ledger = run(freeze="embed_tokens, mlp")
    assert names(ledger, "gradients") and names(ledger, "optimizer_state")
    for line in ledger.lines:
        if line.kind in ("gradients", "optimizer_state"):
            assert "mlp" not in line.name and "embed_tokens" not in line.name
    whole = run()
    assert ledger.parameters.total == whole.parameters.total > ledger.parameters.trained


def test_layers_before_the_first_trained_parameter_save_nothing() -> None:
    """With the embedding frozen too, four frozen layers keep as little as none."""
    shallow = estimate(from_config(LLAMA | {"num_hidden_layers": 2}), sequence=16, precision="bf16",
                       freeze="embed_tokens")
    deep = run(freeze="embed_tokens", frozen_layers=4)
    kept = [ledger.phases["after_forward"] - ledger.phases["step_start"] for ledger in (shallow, deep)]
    assert kept[0] == kept[1]
    assert run(frozen_layers=4).phases["after_forward"] > deep.phases["after_forward"]


def test_more_frozen_layers_never_cost_more() -> None:
    peaks = [run(frozen_layers=n, freeze="embed_tokens").totals.tensors for n in range(7)]
    assert peaks == sorted(peaks, reverse=True)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("given", [
    {"frozen_layers": 2}, {"frozen_layers": 1, "freeze": "embed,wte"}, {"frozen_layers": 5, "checkpoint": "full"},
    {"frozen_layers": 3, "lora_rank": 4}, {"lora_rank": 4, "lora_targets": ("default",)},
], ids=str)
def test_folded_layers_say_what_unfolded_ones_do(family: str, given: dict[str, Any]) -> None:
    if "freeze" in given:
        given = given | {"freeze": "wte" if family == "gpt2" else "embed"}
    if family == "mixtral" and "lora_targets" in given:  # which has no default
        given = given | {"lora_targets": ("q_proj", "v_proj")}
    model, setup = from_config(FAMILIES[family]), Setup.of(sequence=16, batch=2, precision="bf16", **given)
    levels = []
    for unfold in (False, True):
        structure, numbers = structure_of(model, setup, unfold)
        levels.append(replay(compiled(interpret(structure)), numbers))
    assert levels[0] == levels[1]
    moments = [row.moment for row in estimate(model, setup).chart]
    assert moments == ["start", "F1", "F2", "F3", "B3", "B2", "B1", "step", "clear"]


def test_adapters_stand_where_peft_defines_them() -> None:
    """base_layer.weight, base_layer.bias, lora_A, lora_B; GPT-2's Conv1D has a bias and lies as (in, out)."""
    setup = Setup.of(sequence=16, lora_rank=4, lora_targets="c_attn")
    structure, _ = structure_of(from_config(FAMILIES["gpt2"]), setup)
    found = [name for name in interpret(structure).parameters if "c_attn" in name and "0.first" in name]
    assert [name.rpartition("c_attn.")[2] for name in found] == [
        "base_layer.weight", "base_layer.bias", "lora_A.default.weight", "lora_B.default.weight"]
    a, b = (interpret(structure).parameters[name] for name in found[2:])
    assert (a.dims, b.dims) == ((("r",), ("h",)), (("3", "a", "d"), ("r",)))
    assert {a.dtype, b.dtype} == {"fp32"}


def test_all_linear_leaves_embedding_and_head_alone() -> None:
    ledger = run(lora_rank=4)
    adapted = {name.split(".lora_")[0] for name in names(ledger, "weights", "default.weight")}
    assert adapted == {f"model.layers.*.{part}" for part in (
        "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj",
        "mlp.up_proj", "mlp.down_proj")}


def test_frozen_layers_get_no_adapters() -> None:
    half, whole = run(lora_rank=4, frozen_layers=3), run(lora_rank=4)
    assert 2 * half.parameters.trained == whole.parameters.trained


def test_defaults_are_those_of_peft() -> None:
    peft = pytest.importorskip("peft")
    table = peft.utils.constants.TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING
    assert {name: list(parts) for name, parts in DEFAULT_TARGETS.items()} == {
        name: table[name] for name in DEFAULT_TARGETS}
    assert set(table) & set(hf_config.FAMILIES) - set(DEFAULT_TARGETS) == {"mixtral", "gemma4"}


@pytest.mark.parametrize(("given", "words"), [
    ({"lora_rank": 4, "lora_targets": ("qproj",)}, "it has q_proj, k_proj, v_proj, o_proj, gate_proj"),
    ({"lora_rank": 4, "lora_targets": ("embed_tokens",)}, "no such linear module"),
    ({"freeze": "layers.0.mlp"}, "meets no parameter"),
    ({"frozen_layers": 7}, "has 6 layers"),
    ({"freeze": "embed,norm,lm_head", "frozen_layers": 6}, "nothing is left to train"),
])
def test_mistakes_are_told_in_one_line(given: dict[str, Any], words: str) -> None:
    with pytest.raises(Impossible, match=words) as error:
        run(**given)
    assert "\n" not in str(error.value)


def test_architectures_without_a_default_say_so() -> None:
    with pytest.raises(Impossible, match="no default of peft's is known for phi3"):
        run(LLAMA | {"model_type": "phi3", "pad_token_id": 0}, lora_rank=4, lora_targets=("default",))
