"""Families that are others' kin: parameters of the real models, traced steps to the byte, generation that folds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from peakmem import estimate
from peakmem.errors import Impossible, Unreadable
from peakmem.estimate import parameters_of
from peakmem.estimate.interpret import interpret
from peakmem.estimate.replay import compiled, replay
from peakmem.estimate.settings import structure_of
from peakmem.readers.hf_config import from_config
from peakmem.setup import Setup
from tests.architectures.test_decoders import real_model, sides
from tests.reference_steps import DATA, differences, events_by_phase

TINY = {record["id"]: record for record in json.loads((DATA / "traced_kin.json").read_text())}

BASE = {"hidden_size": 48, "intermediate_size": 56, "num_hidden_layers": 4, "num_attention_heads": 6,
        "num_key_value_heads": 2, "vocab_size": 97, "max_position_embeddings": 64, "pad_token_id": 0}
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 24}
WINDOWS = {"sliding_window": 20, "layer_types": ["sliding_attention", "full_attention"] * 2}
VARIANTS: dict[str, dict[str, Any]] = {
    "ministral": {"model_type": "ministral", "head_dim": 10, **WINDOWS},
    "ministral, all slide": {"model_type": "ministral", "head_dim": 8, "sliding_window": 9,
                             "tie_word_embeddings": True},
    "seed_oss": {"model_type": "seed_oss", "head_dim": 10, "attention_out_bias": True, "mlp_bias": True},
    "glm": {"model_type": "glm", "head_dim": 12},
    "glm, no biases, all turned": {"model_type": "glm", "head_dim": 12, "attention_bias": False,
                                   "partial_rotary_factor": 1.0},
    "glm4": {"model_type": "glm4", "head_dim": 12},
    "olmo": {"model_type": "olmo", "attention_bias": True},
    "olmo3": {"model_type": "olmo3", "sliding_window": 20},
    "olmoe": {"model_type": "olmoe", "num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": True},
    "smollm3": {"model_type": "smollm3", "use_sliding_window": True, "sliding_window": 20, "mlp_bias": True},
    "smollm3, no windows": {"model_type": "smollm3", "no_rope_layers": [1, 0, 0, 1]},
    "minimax_m2": {"model_type": "minimax_m2", "head_dim": 12, "num_local_experts": 4, "num_experts_per_tok": 2,
                   "rotary_dim": 6},
    "qwen2_moe": {"model_type": "qwen2_moe", "num_experts": 4, "shared_expert_intermediate_size": 28,
                  "mlp_only_layers": [1], **EXPERTS},
    "qwen2_moe, windows": {"model_type": "qwen2_moe", "num_experts": 4, "shared_expert_intermediate_size": 28,
                           "use_sliding_window": True, "sliding_window": 20, "max_window_layers": 3, **EXPERTS},
    "glm4_moe": {"model_type": "glm4_moe", "head_dim": 12, "n_routed_experts": 8, "n_group": 2, "topk_group": 1,
                 "use_qk_norm": True, "attention_bias": True, **EXPERTS},
    "mimo_v2_flash": {"model_type": "mimo_v2_flash", "num_attention_heads": 8, "head_dim": 12, "v_head_dim": 10,
                      "n_routed_experts": 8, "n_group": 2, "topk_group": 1, "sliding_window": 20, **EXPERTS},
    "mimo_v2_flash, a head each": {"model_type": "mimo_v2_flash", "num_attention_heads": 4, "head_dim": 12,
                                   "v_head_dim": 12, "n_routed_experts": 8, "sliding_window": 9, **EXPERTS},
    "glm4_moe_lite": {"model_type": "glm4_moe_lite", "n_routed_experts": 8, "n_group": 2, "topk_group": 1,
                      "kv_lora_rank": 12, "q_lora_rank": 16, "qk_nope_head_dim": 6, "head_dim": 4, "v_head_dim": 14,
                      "num_key_value_heads": 6, "mlp_layer_types": ["dense", "sparse"] * 2, **EXPERTS},
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_parameters_are_those_of_transformers(variant: str) -> None:
    config = BASE | VARIANTS[variant]
    structure, numbers = structure_of(from_config(config), Setup.of(sequence=16), unfold=True)
    ours = []
    for key, p in interpret(structure).parameters.items():
        layer = key.partition(".")[0] if p.full_name != key else ""
        ours.append((p.full_name.replace("*", layer), sides(p.dims, numbers)))
    assert ours == [(name, tuple(p.shape)) for name, p in real_model(config).named_parameters()]


@pytest.mark.parametrize("name", TINY)
def test_tiny_steps(name: str) -> None:
    assert differences(TINY[name]) == {}


@pytest.mark.parametrize("name", TINY)
def test_every_allocation(name: str) -> None:
    for phase, (ours, want) in events_by_phase(TINY[name]).items():
        assert ours == want, phase


def test_every_family_is_traced() -> None:
    traced = {record["config"]["model_type"] for record in TINY.values()}
    assert traced == {config["model_type"] for config in VARIANTS.values()} | {"xlm-roberta"}


@pytest.mark.parametrize("variant", VARIANTS)
def test_generation_folds(variant: str) -> None:
    """Prefill and decoding of n layers are those of one body, n times."""
    levels = []
    for unfold in (False, True):
        setup = Setup.of(run="inference", sequence=16, generate=8, precision="bf16")
        structure, numbers = structure_of(from_config(BASE | VARIANTS[variant]), setup, unfold=unfold)
        levels.append(replay(compiled(interpret(structure)), numbers))
    assert levels[0] == levels[1]


ENCODER = {"hidden_size": 48, "intermediate_size": 56, "num_hidden_layers": 3, "num_attention_heads": 6,
           "vocab_size": 97, "max_position_embeddings": 40}


@pytest.mark.parametrize(("kind", "name"), [("xlm-roberta", "XLMRoberta"), ("camembert", "Camembert"),
                                            ("roberta", "Roberta"), ("bert", "Bert")])
def test_encoders_with_a_pooler_are_the_class_itself_in_inference(kind: str, name: str) -> None:
    """Trained they are the class with the head: parameters of both, name for name."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    model = from_config({"model_type": kind, "architectures": [f"{name}Model"], **ENCODER})
    settings = transformers.AutoConfig.for_model(kind, **ENCODER)
    for run, cls in (("training", f"{name}ForMaskedLM"), ("inference", f"{name}Model")):
        structure, numbers = structure_of(model, Setup.of(sequence=16, run=run), unfold=True)
        ours = []
        for key, p in interpret(structure).parameters.items():
            layer = key.partition(".")[0] if p.full_name != key else ""
            full = p.full_name.replace("*", layer)
            ours.append((full.partition(".")[2] if run == "inference" else full, sides(p.dims, numbers)))
        with torch.device("meta"):
            real = getattr(transformers, cls)(settings)
        shared = {"lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight"}  # where the head comes first
        assert ours == [(shared.get(name, name), tuple(p.shape)) for name, p in real.named_parameters()]


@pytest.mark.parametrize(("more", "words"), [
    ({"hybrid_layer_pattern": [1] * 48}, "hybrid_layer_pattern is not the class's"),
    ({"swa_num_key_value_heads": 4}, "swa_num_key_value_heads is 4, and the class has 8"),
    ({"num_key_value_heads": 64}, "sliding layers have 128 key/value heads"),
])
def test_mimo_files_that_say_another_network(more: dict[str, Any], words: str) -> None:
    with pytest.raises(Impossible, match=words):
        from_config({"model_type": "mimo_v2_flash", **more})
    real = {"n_shared_experts": None, "moe_layer_freq": [0] + [1] * 47, "sliding_window_size": 128,
            "hybrid_layer_pattern": [int(bool(i) and (i + 1) % 6 > 0) for i in range(48)]}
    assert from_config({"model_type": "mimo_v2_flash", **real}).window == 129


def test_heads_of_another_width_do_not_fit_olmoe() -> None:
    with pytest.raises(Impossible, match="head_dim 32 × num_attention_heads 16"):
        from_config({"model_type": "olmoe", "head_dim": 32})


def test_clamped_olmo_is_refused() -> None:
    with pytest.raises(Impossible, match="clip_qkv is 8"):
        from_config({"model_type": "olmo", "clip_qkv": 8.0})


BLOCK = {"attention": {"n_heads_in_group": 3, "no_op": False}, "ffn": {"ffn_mult": 1.5, "no_op": False}}
NAS: dict[str, Any] = {"model_type": "nemotron-nas", "hidden_size": 768, "num_attention_heads": 6,
                       "num_hidden_layers": 4, "vocab_size": 97, "block_configs": [
                           BLOCK, {**BLOCK, "attention": {"no_op": True}}, {**BLOCK, "ffn": {"no_op": True}},
                           {**BLOCK, "ffn": {"ffn_mult": 0.4, "no_op": False}}]}


def test_nemotron_nas_is_llama_with_parts_left_out() -> None:
    """Hand count: 2Vh + h, and in each layer what it has: h·(2h + 2·h/3) + h, 3·h·f + h with f up to 256."""
    model = from_config(NAS)
    hidden, attention = 768, 768 * (2 * 768 + 2 * 256) + 768
    wide, narrow = 3 * 768 * 768 + 768, 3 * 768 * 256 + 768
    total = 2 * 97 * hidden + hidden + 3 * attention + 2 * wide + narrow
    assert parameters_of(*structure_of(model, Setup.of(sequence=16))).total == total
    cache = [line for line in estimate(model, run="inference", sequence=16).lines if line.kind == "kv_cache"]
    assert {line.name.split("/")[1] for line in cache} == {"cached keys", "cached values"}


@pytest.mark.parametrize("lever", [{}, {"checkpoint": "full"}, {"lora_rank": 4}, {"precision": "amp-bf16"}])
def test_nemotron_nas_with_every_part_is_llama_to_the_byte(lever: dict[str, Any]) -> None:
    llama = {"model_type": "llama", "hidden_size": 768, "num_attention_heads": 6, "num_hidden_layers": 4,
             "vocab_size": 97, "intermediate_size": 768, "num_key_value_heads": 2}
    ours = estimate(from_config(NAS | {"block_configs": [BLOCK] * 4}), sequence=32, **lever)
    theirs = estimate(from_config(llama), sequence=32, **lever)
    assert ours.phases == theirs.phases and ours.peak.by_kind == theirs.peak.by_kind


@pytest.mark.parametrize("blocks", [[BLOCK] * 3, "x", [BLOCK] * 3 + [{"ffn": BLOCK["ffn"]}],
                                    [BLOCK] * 3 + [{**BLOCK, "ffn": {"replace_with_linear": True}}]])
def test_blocks_that_are_not_known_are_refused(blocks: Any) -> None:
    with pytest.raises((Impossible, Unreadable), match="block_configs|replace_with_linear|attention"):
        from_config(NAS | {"block_configs": blocks})


def test_text_parts_are_read_under_their_own_names() -> None:
    sizes = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 97}
    text = {"model_type": "kimi_k2", **sizes, "first_k_dense_replace": 1}
    flat = {"model_type": "kimi_k25", **sizes, "first_k_dense_replace": 1, "vision_config": {"vt_hidden_size": 8}}
    nested = {"model_type": "kimi_k25", "text_config": text}
    assert {from_config(config).architecture for config in (flat, nested)} == {"deepseek_v3"}
    assert from_config(flat).layers == from_config(nested).layers == 2


# Published totals: Qwen/Qwen-1_8B, THUDM/chatglm3-6b, internlm/internlm2-7b, baichuan-inc/Baichuan2-7B.
OWN_CODE = {
    "qwen": (1836828672, {"hidden_size": 2048, "intermediate_size": 11008, "num_attention_heads": 16,
                          "num_hidden_layers": 24, "vocab_size": 151936, "kv_channels": 128, "no_bias": True}),
    "chatglm": (6243584000, {"hidden_size": 4096, "ffn_hidden_size": 13696, "num_attention_heads": 32,
                             "num_layers": 28, "padded_vocab_size": 65024, "kv_channels": 128, "add_qkv_bias": True,
                             "multi_query_attention": True, "multi_query_group_num": 2, "add_bias_linear": False}),
    "internlm2": (7737708544, {"hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
                               "num_key_value_heads": 8, "num_hidden_layers": 32, "vocab_size": 92544, "bias": False}),
    "baichuan": (7505973248, {"hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32,
                              "num_hidden_layers": 32, "vocab_size": 125696}),
}


@pytest.mark.parametrize("kind", OWN_CODE)
def test_files_with_code_of_their_own(kind: str) -> None:
    total, sizes = OWN_CODE[kind]
    model = from_config({"model_type": kind, **sizes})
    assert parameters_of(*structure_of(model, Setup.of(sequence=16))).total == total
    assert any("code lies beside its weights" in note for note in model.notes)
    for name in sizes:
        if name.endswith(("size", "heads", "layers")) and name != "num_key_value_heads":
            with pytest.raises(Unreadable, match=f"{name} missing"):
                from_config({"model_type": kind, **{key: value for key, value in sizes.items() if key != name}})
