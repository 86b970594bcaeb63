"""Files that nobody should trust: one line, soon, small, nothing executed; and beside each the file that is fine."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from peakmem.errors import Impossible, PeakmemError
from peakmem.readers import read_model
from tests.readers.hostile import GOOD, refused, written

# C14: what is not an object in JSON


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "empty"),
        (b"  \n\t", "empty"),
        (b"null", "null"),
        (b"[]", "a list"),
        (b'"x"', "a string"),
        (b"5", "a number"),
        (b"true", "a truth value"),
        (b'{"model_type": "llama",}', "line 1, column 24"),
        (b'{"model_type": "llama" // comment\n}', "not JSON"),
        (b'# c\n{"model_type": "llama"}', "not JSON"),
        (b"{'model_type': 'llama'}", "not JSON"),
        (b'{"model_type": "ll\xe4ma"}', "byte 18"),
        (b'{"model_type": "llama"', "not JSON"),
        (b"\xff\xfe\x00", "UTF-16"),
        (b"\x00" * 64, "not JSON"),
        (b'{"model_type": "llama"}{', "not JSON"),
        (b'{"a": "\x01"}', "not JSON"),
        (b"\xef\xbb\xbf", "not JSON"),
    ],
)
def test_what_is_not_a_config(tmp_path: Path, content: bytes, word: str) -> None:
    assert word in refused(written(tmp_path, content))


@pytest.mark.parametrize(
    "content",
    [
        json.dumps(GOOD).encode("utf-8-sig"),
        json.dumps(GOOD).encode("utf-16"),
        json.dumps(GOOD).encode("utf-32"),
        json.dumps(GOOD, indent=1).replace("\n", "\r\n").encode(),
        b"\n\n " + json.dumps(GOOD).encode() + b"\n",
        json.dumps({**GOOD, "_name_or_path": "ünï"}, ensure_ascii=False).encode(),
    ],
    ids=["BOM", "UTF-16", "UTF-32", "CRLF", "spaces", "letters"],
)
def test_ways_to_write_the_same_file(tmp_path: Path, content: bytes) -> None:
    assert read_model(written(tmp_path, content)).hidden == 4096


# C15: numbers that are none


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e400", "-1e400", "-0.0", "0.0"])
def test_not_a_number_where_it_is_used(tmp_path: Path, value: str) -> None:
    text = refused(written(tmp_path, f'{{"model_type": "llama", "hidden_size": {value}}}'))
    assert "hidden_size" in text and "from 1 to 1,000,000,000" in text
    if "0.0" not in value:
        refused(written(tmp_path, f'{{"model_type": "llama", "attention_dropout": {value}}}'))


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e400"])
def test_not_a_number_where_it_is_not_used(tmp_path: Path, value: str) -> None:
    model = read_model(written(tmp_path, f'{{"model_type": "llama", "rope_theta": {value}}}'))
    assert any("not a number" in note and "rope_theta" in note for note in model.notes)


def test_minus_zero_is_a_dropout(tmp_path: Path) -> None:
    model = read_model(written(tmp_path, '{"model_type": "llama", "attention_dropout": -0.0}'))
    assert str(model.attention_dropout) == "0.0"


# C16: a size is a whole number from 1 to 10^9


@pytest.mark.parametrize(
    "value", [-4096, 0, 0.5, "4096", True, False, None, [4096], {"a": 1}, 10**30, 4096.7, -1, 10**9 + 1]
)
@pytest.mark.parametrize(
    "name", ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"]
)
def test_what_is_no_size(tmp_path: Path, name: str, value: Any) -> None:
    text = refused(written(tmp_path, {**GOOD, name: value}))
    assert name in text and "1,000,000,000" in text


def test_sizes_that_are_fine(tmp_path: Path) -> None:
    assert read_model(written(tmp_path, {**GOOD, "vocab_size": 10**9})).vocabulary == 10**9
    whole = read_model(written(tmp_path, {**GOOD, "hidden_size": 4096.0}))
    assert whole.hidden == 4096 and any("4096.0 is read as 4096" in note for note in whole.notes)
    assert type(whole.hidden) is int
    assert read_model(written(tmp_path, {**GOOD, "num_key_value_heads": None})).kv_heads == 32
    assert read_model(written(tmp_path, {**GOOD, "head_dim": None})).head_size == 128


@pytest.mark.parametrize("value", [0, 1, "true", None, [], 0.0])
def test_only_truth_values_are_truth_values(tmp_path: Path, value: Any) -> None:
    assert "give true or false" in refused(written(tmp_path, {**GOOD, "tie_word_embeddings": value}))


@pytest.mark.parametrize("value", [-0.1, 1.5, "0.1", True, []])
def test_a_dropout_is_a_share(tmp_path: Path, value: Any) -> None:
    assert "from 0 to 1" in refused(written(tmp_path, {**GOOD, "attention_dropout": value}))


@pytest.mark.parametrize("value", [3, None, "swiglu", "x" * 10**6, "\x1b[31m"])
def test_an_activation_is_a_known_word(tmp_path: Path, value: Any) -> None:
    refused(written(tmp_path, {**GOOD, "hidden_act": value}), PeakmemError)  # type: ignore[type-abstract]


# C17: layers without end


def test_a_list_of_layers_has_the_right_length(tmp_path: Path) -> None:
    config = {"model_type": "qwen2", "num_hidden_layers": 10**9, "layer_types": ["full_attention"] * 3}
    text = refused(written(tmp_path, config), Impossible)
    assert "3 entries" in text and "1,000,000,000" in text
    assert read_model(written(tmp_path, {**config, "num_hidden_layers": 3})).layers == 3


@pytest.mark.parametrize("kind", ["llama", "qwen2", "gpt2", "bert", "vit", "mixtral", "qwen3_moe"])
def test_a_billion_equal_layers_are_no_loop(tmp_path: Path, kind: str) -> None:
    start = time.perf_counter()
    assert read_model(written(tmp_path, {"model_type": kind, "num_hidden_layers": 10**9})).layers == 10**9
    assert time.perf_counter() - start < 0.5


@pytest.mark.parametrize(
    "more",
    [
        {"model_type": "gemma2"},
        {"model_type": "gemma3_text"},
        {"model_type": "qwen3_moe", "decoder_sparse_step": 2},
        {"model_type": "qwen2", "use_sliding_window": True},
    ],
)
def test_a_billion_different_layers_are_too_many(tmp_path: Path, more: dict[str, Any]) -> None:
    assert "1,000,000" in refused(written(tmp_path, {**more, "num_hidden_layers": 10**9}))
    assert len(read_model(written(tmp_path, {**more, "num_hidden_layers": 10**6})).layer_kinds) == 10**6


@pytest.mark.parametrize("value", ["full_attention", {"a": 1}, [1] * 32, ["linear_attention"] * 32, [None] * 32])
def test_kinds_of_layers_are_known_words(tmp_path: Path, value: Any) -> None:
    assert "layer_types" in refused(written(tmp_path, {"model_type": "qwen2", "layer_types": value}))


# C19: heads


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"num_key_value_heads": 64}, ("64", "32")),
        ({"num_key_value_heads": 5}, ("5", "32")),
        ({"num_attention_heads": 33}, ("4096", "33", "head_dim")),
        ({"num_attention_heads": 33, "head_dim": 5}, ("5", "even")),
        ({"head_dim": 127}, ("127", "even")),
        ({"hidden_size": 4096 * 3 // 4 + 1, "num_attention_heads": 1}, ("3073", "even")),
    ],
)
def test_heads_that_do_not_fit(tmp_path: Path, more: dict[str, Any], words: tuple[str, ...]) -> None:
    text = refused(written(tmp_path, {**GOOD, **more}), Impossible)
    assert all(word in text for word in words)


@pytest.mark.parametrize(
    "more",
    [
        {"num_key_value_heads": 32},
        {"num_key_value_heads": 1},
        {"num_attention_heads": 33, "head_dim": 128},
        {"head_dim": 126},
    ],
)
def test_heads_that_do_fit(tmp_path: Path, more: dict[str, Any]) -> None:
    model = read_model(written(tmp_path, {**GOOD, **more}))
    assert model.heads % model.kv_heads == 0


def test_a_default_that_does_not_fit_is_named_as_one(tmp_path: Path) -> None:
    text = refused(written(tmp_path, {"model_type": "gemma", "num_attention_heads": 8}), Impossible)
    assert "num_key_value_heads 16 (the default)" in text


@pytest.mark.parametrize("kind", ["gpt2", "gpt_neox", "opt", "bert", "vit"])
def test_hidden_is_divided_by_heads(tmp_path: Path, kind: str) -> None:
    name = "n_head" if kind == "gpt2" else "num_attention_heads"
    refused(written(tmp_path, {"model_type": kind, name: 7}), Impossible)
    assert read_model(written(tmp_path, {"model_type": kind, name: 8})).heads == 8


# C20: experts


@pytest.mark.parametrize(
    ("kind", "name", "count"), [("mixtral", "num_local_experts", 8), ("qwen3_moe", "num_experts", 128)]
)
def test_experts(tmp_path: Path, kind: str, name: str, count: int) -> None:
    text = refused(written(tmp_path, {"model_type": kind, "num_experts_per_tok": count + 1}), Impossible)
    assert str(count) in text and str(count + 1) in text
    refused(written(tmp_path, {"model_type": kind, name: None}))
    refused(written(tmp_path, {"model_type": kind, "num_experts_per_tok": 0}))
    model = read_model(written(tmp_path, {"model_type": kind, "num_experts_per_tok": count}))
    assert model.experts_per_token == model.experts == count


def test_dense_layers_of_a_mixture(tmp_path: Path) -> None:
    for value in ([True], ["0"], 3, {"0": 1}):
        refused(written(tmp_path, {"model_type": "qwen3_moe", "mlp_only_layers": value}))
    refused(written(tmp_path, {"model_type": "qwen3_moe", "decoder_sparse_step": 0}))
    beyond = read_model(written(tmp_path, {"model_type": "qwen3_moe", "mlp_only_layers": [10**9, -1]}))
    assert set(beyond.layer_kinds) <= {"moe"}
    assert read_model(written(tmp_path, {"model_type": "qwen3_moe", "num_experts": 0})).experts == 0


# C22: JSON that eats memory or time


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"hidden_size": ' + b"9" * 10**6 + b"}",
        b'{"rope_theta": 1.' + b"9" * 10**6 + b"}",
    ],
    ids=["lists", "objects", "digits", "fraction"],
)
def test_deep_and_long(tmp_path: Path, content: bytes) -> None:
    refused(written(tmp_path, content))


def test_nesting_and_numbers_that_are_fine(tmp_path: Path) -> None:
    nested = json.dumps(GOOD)[:-1] + ', "extra": ' + "[" * 200 + "]" * 200 + ', "rope_theta": ' + "9" * 300 + "}"
    assert read_model(written(tmp_path, nested)).hidden == 4096
