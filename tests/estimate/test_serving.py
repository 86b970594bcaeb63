"""Inference as servers run it: the exact rows of published logs, kinds of cache, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from peakmem.errors import Impossible
from peakmem.estimate import estimate
from peakmem.estimate.server import blocks_of, bytes_per_token
from peakmem.estimate.settings import structure_of
from peakmem.model import Model
from peakmem.readers.hf_config import from_config
from peakmem.setup import Setup

CONFIGS = Path(__file__).parents[1] / "data" / "configs"
GIB, MIB = 2**30, 2**20
LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 4, "vocab_size": 1000,
    "num_attention_heads": 8, "num_key_value_heads": 4, "tie_word_embeddings": False,
}


def per_token(model: Model, **given: Any) -> int:
    return bytes_per_token(*structure_of(model, Setup.of(run="inference", precision="bf16", **given)))


def gpt_oss_120b() -> Model:
    small = Model.read(CONFIGS / "gpt-oss-20b.json")
    return small.changed(layers=36, experts=128, layer_kinds=("sliding", "full") * 18)


def run(config: dict[str, Any] = LLAMA, **given: Any) -> Any:
    usual = {"run": "inference", "precision": "bf16", "sequence": 96, "generate": 33}
    return estimate(from_config(config), **usual | given)


def test_llama_3_1_8b_in_the_blocks_that_vllm_printed() -> None:
    """A09: 1952 and 1478 blocks of 16 tokens in 3.8125 and 2.887 GiB."""
    token = per_token(Model.read(CONFIGS / "llama-3.1-8b.json"))
    assert token == 131_072
    assert 1952 * 16 * token == 3.8125 * GIB
    assert blocks_of(int(3.8125 * GIB), token, 16) == 1952
    assert f"{1478 * 16 * token / GIB:.3f}" == "2.887"


def test_a_server_counts_windowed_layers_whole() -> None:
    """A10: gpt-oss-120b, 78,384 tokens in 5.382 GiB; A08: Qwen3-1.7B, 175,856 tokens in 18.783 GiB."""
    assert per_token(gpt_oss_120b(), kv_cache="paged") == 73_728
    assert f"{78_384 * 73_728 / GIB:.3f}" == "5.382"
    qwen = from_config({"model_type": "qwen3", "num_hidden_layers": 28, "num_attention_heads": 16, "head_dim": 128,
                        "num_key_value_heads": 8, "hidden_size": 2048, "intermediate_size": 6144})
    assert f"{175_856 * per_token(qwen) / GIB:.3f}" == "18.783"


def test_a_token_of_qwen2_5_7b_is_57_344_bytes_whatever_its_weights() -> None:
    """A14: 3072 tokens are 168 MiB."""
    model = Model.read(CONFIGS / "qwen2-7b.json")
    for weights in ("auto", "gptq"):
        assert 3072 * per_token(model, weights=weights) == 168 * MIB


def test_a_hybrid_has_a_cache_in_its_full_layers_alone() -> None:
    """A12: 16 of 64 layers; 262,144 tokens are 16384 MiB."""
    assert 262_144 * per_token(Model.read(CONFIGS / "qwen3.5-27b.json")) == 16_384 * MIB


def test_a_context_of_448_in_blocks_of_512_is_what_whisper_holds_for_a_beam() -> None:
    """A52: 32 layers, 20 heads of 64: 83.9 MB for each decoder."""
    decoder = from_config(LLAMA | {"num_hidden_layers": 32, "hidden_size": 1280, "num_attention_heads": 20,
                                   "num_key_value_heads": 20})
    ledger = estimate(decoder, run="inference", precision="fp16", sequence=400, generate=49, kv_cache="paged",
                      block_size=512)
    cache = ledger.kinds["kv_cache"].largest
    assert f"{cache / 1e6:.1f}" == "83.9"


def test_concatenation_needs_one_layer_twice_and_a_buffer_does_not() -> None:
    token = 2 * 4 * 4 * 64 * 2
    concatenated, static, paged = (run(kv_cache=kind) for kind in ("concatenated", "static", "paged"))
    assert static.kinds["kv_cache"].largest == 128 * token
    assert concatenated.kinds["kv_cache"].largest == 128 * token + 127 * token // 8
    assert run(generate=34, kv_cache="paged").kinds["kv_cache"].largest == 144 * token
    assert paged.kinds["kv_cache"].largest == 128 * token


@pytest.mark.parametrize("kind", ["concatenated", "static", "paged"])
def test_fewer_bits_take_the_part_of_the_cache_that_they_are(kind: str) -> None:
    sizes = [run(kv_cache=kind, kv_bits=bits).kinds["kv_cache"].largest for bits in (16, 8, 4)]
    assert abs(sizes[0] - 2 * sizes[1]) <= 1024 and abs(sizes[0] - 4 * sizes[2]) <= 2048  # storages are rounded to 512


def test_beams_are_sequences() -> None:
    assert run(beams=3, batch=2).phases == run(batch=6).phases


def test_chunks_cost_less_and_a_chunk_as_long_as_the_prompt_changes_nothing() -> None:
    long = dict(sequence=4096)
    whole, pieces = run(**long), run(**long, prefill_chunk=256)
    assert pieces.phases["prefill_peak"] < whole.phases["prefill_peak"]
    assert pieces.phases["decode_peak"] == whole.phases["decode_peak"]
    assert run(**long, prefill_chunk=4096).phases == whole.phases
    assert [row.moment for row in pieces.chart] == [row.moment for row in whole.chart]


def test_heads_are_divided_until_each_gpu_has_one_and_are_then_replicated() -> None:
    tokens = [per_token(from_config(LLAMA), tensor_parallel=gpus) for gpus in (1, 2, 4, 8)]
    assert tokens == [4096, 2048, 1024, 1024]
    assert run(tensor_parallel=2).phases["load"] < 0.51 * run().phases["load"]


@pytest.mark.parametrize("given, words", [
    (dict(tensor_parallel=3), "heads, 8"), (dict(kv_bits=7), "16, 8 or 4"),
    (dict(run="training", beams=2), "inference"), (dict(run="training", tensor_parallel=2), "inference"),
])
def test_what_does_not_divide_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(Impossible, match=words):
        run(**given)


def test_needed_and_reserved_are_two_numbers() -> None:
    notes = "\n".join(run(gpu="RTX 3090", kv_cache="paged").notes)
    assert "needed for this load" in notes and "reserved by a server" in notes and "blocks of 16 tokens" in notes


@pytest.mark.parametrize("levers", [dict(kv_cache="paged"), dict(kv_bits=8), dict(prefill_chunk=16), dict(beams=2)],
                         ids=str)
@pytest.mark.parametrize("name", ["gemma-2-9b", "gpt-oss-20b", "qwen3-30b-a3b", "falcon-7b"])
def test_the_chart_has_the_peak_whatever_the_cache(name: str, levers: dict[str, Any]) -> None:
    model = Model.read(CONFIGS / f"{name}.json")
    ledger = estimate(model, run="inference", sequence=64, generate=8, weights="auto", **levers)
    assert max(row.peak for row in ledger.chart) == ledger.totals.tensors
    assert sum(ledger.by_kind().values()) == ledger.peak.bytes


def test_a_window_bounds_the_cache_of_a_prompt_in_chunks() -> None:
    gemma = Model.read(CONFIGS / "gemma-2-9b.json")  # 21 of 42 layers see 4096 tokens; 16 is short enough to matter
    narrow = gemma.changed(window=16)
    caches = [estimate(narrow, run="inference", sequence=256, generate=2, prefill_chunk=chunk).kinds["kv_cache"].largest
              for chunk in (0, 64)]
    assert caches[1] <= caches[0]


@pytest.mark.parametrize(("tokens", "peak"), [(20_000, 17.06), (29_000, 17.98)])
def test_a_prefill_of_fused_kernels_is_what_vllm_profiled(tokens: int, peak: float) -> None:
    """vllm issue 10517: Llama-3.1-8B, 14.9888 GiB of weights; the peak without a cache."""
    ledger = estimate("llama-3.1-8b", run="inference", sequence=tokens, generate=1, precision="bf16", kv_cache="paged",
                      implementation="fused")
    kinds = ledger.kinds
    work = ledger.phases["prefill_peak"] - kinds["kv_cache"].largest - kinds["weights"].largest
    assert abs(14.9888 + work / 2**30 - peak) < 0.015
    assert [line.count for line in ledger.lines if "cos_sin_cache" in line.name] == [1]  # for all layers together
    with pytest.raises(Impossible, match="trains"):
        estimate("llama-3.1-8b", run="inference", implementation="torchtitan")
