"""Fields of a config.json that change what is built: experts, biases, rotation, old names, and what is not used."""

from __future__ import annotations

from pathlib import Path

import pytest

from peakmem.errors import UnknownName
from peakmem.model import Model
from peakmem.readers import read_model
from peakmem.readers.hf_config import from_config
from tests.conftest import CONFIGS
from tests.readers.test_hf_config import theirs

transformers = pytest.importorskip("transformers")


@pytest.mark.parametrize(("step", "dense"), [(1, []), (2, []), (1, [0, 2]), (3, [5]), (9, []), (1, [0, 1, 2, 3, 4, 5])])
def test_experts_sit_where_transformers_puts_them(step: int, dense: list[int]) -> None:
    torch = pytest.importorskip("torch")
    config = {
        "model_type": "qwen3_moe",
        "num_hidden_layers": 6,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 32,
        "intermediate_size": 128,
        "vocab_size": 99,
        "decoder_sparse_step": step,
        "mlp_only_layers": dense,
    }
    with torch.device("meta"):
        built = transformers.AutoModelForCausalLM.from_config(theirs(config))
    real = tuple("moe" if hasattr(layer.mlp, "experts") else "dense" for layer in built.model.layers)
    model = from_config(config)
    assert (model.layer_kinds or (("moe" if model.experts else "dense"),) * 6) == real
    assert model.feed_forward == (128 if "dense" in real else 32)


@pytest.mark.parametrize(
    ("kind", "field", "bias"),
    [
        ("llama", "attention_bias", {"attention_bias", "output_bias"}),
        ("llama", "mlp_bias", {"mlp_bias"}),
        ("qwen3", "attention_bias", {"attention_bias", "output_bias"}),
        ("gemma", "attention_bias", {"attention_bias", "output_bias"}),
    ],
)
@pytest.mark.parametrize("value", [True, False])
def test_biases(kind: str, field: str, bias: set[str], value: bool) -> None:
    torch = pytest.importorskip("torch")
    small = {
        "model_type": kind,
        "num_hidden_layers": 1,
        "hidden_size": 64,
        "num_attention_heads": 4,
        "head_dim": 16,
        "num_key_value_heads": 4,
        "intermediate_size": 64,
        "vocab_size": 99,
        field: value,
    }
    with torch.device("meta"):
        names = [n for n, _ in transformers.AutoModelForCausalLM.from_config(theirs(small)).named_parameters()]
    real = {
        switch
        for switch, name in (
            ("attention_bias", "q_proj.bias"),
            ("output_bias", "o_proj.bias"),
            ("mlp_bias", "up_proj.bias"),
        )
        if any(n.endswith(name) for n in names)
    }
    assert from_config(small).switches & {"attention_bias", "output_bias", "mlp_bias"} == real
    assert real == (bias if value else set())


def test_partial_rotation() -> None:
    assert from_config({"model_type": "gpt_neox"}).rotary_size == 24  # a quarter of 96
    assert from_config({"model_type": "gpt_neox", "rotary_pct": 1.0}).rotary_size == 0
    assert from_config({"model_type": "phi3", "partial_rotary_factor": 0.75}).rotary_size == 72
    inside = {"model_type": "phi3", "rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}
    assert from_config(inside).rotary_size == 48


def test_gemma_says_gelu_and_means_tanh() -> None:
    assert from_config({"model_type": "gemma", "hidden_act": "gelu"}).activation == "gelu_pytorch_tanh"


def test_opt_350m() -> None:
    model = from_config(
        {
            "model_type": "opt",
            "word_embed_proj_dim": 512,
            "hidden_size": 1024,
            "num_attention_heads": 16,
            "do_layer_norm_before": False,
        }
    )
    assert model.sizes == {"e": 512}
    assert not model.switches & {"norm_before", "final_norm"}
    assert model.positions == 2050


def test_the_text_part_of_gemma_3() -> None:
    nested = {
        "model_type": "gemma3",
        "architectures": ["Gemma3ForConditionalGeneration"],
        "torch_dtype": "bfloat16",
        "text_config": {"hidden_size": 2560, "num_hidden_layers": 34},
        "vision_config": {"hidden_size": 1152},
    }
    model = from_config(nested)
    assert (model.architecture, model.hidden, model.vocabulary, model.tied) == ("gemma3_text", 2560, 262208, True)
    assert any("text part only" in note for note in model.notes)
    assert not from_config({**nested, "tie_word_embeddings": False}).tied
    assert from_config({"model_type": "gemma3"}).hidden == 2304


def test_what_is_not_used_is_said() -> None:
    model = from_config(
        {
            "model_type": "llama",
            "torch_dtype": "float16",
            "wonder_size": 3,
            "another": None,
            "quantization_config": {"quant_method": "gptq", "bits": 3},
            "architectures": ["LlamaForSequenceClassification"],
        }
    )
    text = "\n".join(model.notes)
    for word in ("float16", "wonder_size", "gptq", "LlamaForSequenceClassification"):
        assert word in text
    assert "another" not in text
    assert len(model.notes) <= 6


def test_ordinary_files_need_no_notes() -> None:
    notes = read_model(CONFIGS / "gpt2.json").notes
    assert notes == ("not in the file, so transformers' default holds: n_inner 3,072, tie_word_embeddings true",)
    assert len(read_model(CONFIGS / "llama-3.1-8b.json").notes) == 1  # its dtype


def test_a_folder_and_a_file_have_the_same_model(tmp_path: Path) -> None:
    folder = tmp_path / "my-llama"
    folder.mkdir()
    (folder / "config.json").write_text((CONFIGS / "llama-3.2-1b.json").read_text())
    assert read_model(folder) == read_model(folder / "config.json") == Model.read(str(folder))
    assert read_model(folder).name == "my-llama"


@pytest.mark.parametrize("kind", ["bloom", "falcon"])
def test_an_old_name_of_the_hidden_size_wins(kind: str) -> None:
    """n_embed: the head size follows from it, too."""
    named = {"model_type": kind, "num_attention_heads": 6, "num_hidden_layers": 3, "vocab_size": 97}
    old, new = from_config(named | {"n_embed": 96}), from_config(named | {"hidden_size": 96})
    assert (old.hidden, old.head_size, old.heads) == (new.hidden, new.head_size, new.heads) == (96, 16, 6)


def test_parts_of_clip_under_their_older_names() -> None:
    """CLIPConfig takes text_config_dict, whole with its defaults, before text_config."""
    small = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
    old = from_config({"model_type": "clip", "text_config_dict": small, "vision_config_dict": small,
                       "text_config": {"hidden_size": 48, "num_attention_heads": 4}})
    new = from_config({"model_type": "clip", "text_config": small, "vision_config": small})
    assert (old.hidden, old.layers, old.towers) == (new.hidden, new.layers, new.towers)


def test_an_unknown_family_says_how_to_go_on() -> None:
    with pytest.raises(UnknownName, match="To go on: the model_type of a class with the same layers"):
        from_config({"model_type": "foonet"})
