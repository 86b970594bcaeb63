"""DeepSeek-V4, as transformers 5.24 builds it (models/deepseek_v4/modeling_deepseek_v4.py): parameters and caches.

Every layer has one key that is the value, too, within a window; `csa` and `hca` layers keep an entry for every 4 or 128
tokens beside it, `csa` with an indexer. Its forward, hyper-connections between the layers, is not written.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.definition import (
    Definition,
    Layers,
    Row,
    buffer,
    embedding,
    linear,
    lm_head,
    rms_norm,
    unpacked,
)
from peakmem.architectures.qwen3_moe import dense_rows
from peakmem.estimate.structure import Structure

MIRRORS = "transformers 5.24.0 models/deepseek_v4/modeling_deepseek_v4.py and DeepseekV4CSACache"
RUNS = ("inference",)
UNKNOWN = "what DeepSeek-V4's hyper-connections, compressors and indexers make on the way is not known to peakmem"
RATES = {"csa": "zc", "hca": "zh"}
"""Kinds of layers with compressed entries, and how many tokens become one."""


def define(m: Structure) -> Definition:
    yield from embedding("model.embed_tokens", "V", "h")
    yield Layers("model.layers", lambda kind: block_rows(m, kind))
    yield from wide(rms_norm("model.norm"))
    for name, shape in (("hc_fn", "hm (hm h)"), ("hc_base", "hm"), ("hc_scale", "1")):
        yield Row(f"model.hc_head.{name}", shape, "", "fp32")
    yield from rotary_rows("model.rotary_emb")
    yield from lm_head(m)


def block_rows(m: Structure, kind: str) -> Iterator[Row]:
    yield Row("self_attn.sinks", "a", "", "fp32")
    yield from linear("self_attn.q_a_proj", "lq", "h")
    yield from wide(rms_norm("self_attn.q_a_norm", "lq"))
    yield from linear("self_attn.q_b_proj", "(a d)", "lq")
    yield from linear("self_attn.kv_proj", "d", "h")
    yield from wide(rms_norm("self_attn.kv_norm", "d"))
    yield from unpacked(linear("self_attn.o_a_proj", "(og ol)", "a*d/og"), "not by bitsandbytes")
    yield from linear("self_attn.o_b_proj", "h", "(og ol)")
    word = kind.partition(",")[0]
    if word in RATES:
        yield from compressor_rows("self_attn.compressor", "d", word)
    if word == "csa":
        yield from compressor_rows("self_attn.compressor.indexer", "di", word)
        yield from linear("self_attn.compressor.indexer.q_b_proj", "(ai di)", "lq")
        yield from unpacked(linear("self_attn.compressor.indexer.scorer.weights_proj", "ai", "h"))
    yield Row("mlp.gate.weight", "E h")
    yield from buffer("mlp.gate.tid2eid", "V K", "int64") if kind.endswith(", hash") else buffer(
        "mlp.gate.e_score_correction_bias", "E", "fp32")
    yield Row("mlp.experts.gate_up_proj", "E (2 x) h")
    yield Row("mlp.experts.down_proj", "E h x")
    yield from dense_rows(m.has("mlp_bias"), "mlp.shared_experts", "x")
    yield from wide(rms_norm("input_layernorm"))
    yield from wide(rms_norm("post_attention_layernorm"))
    for part in ("attn_hc", "ffn_hc"):
        for name, shape in (("fn", "hm*hm+hm+hm (hm h)"), ("base", "hm*hm+hm+hm"), ("scale", "3")):
            yield Row(f"{part}.{name}", shape, "", "fp32")


def compressor_rows(name: str, size: str, word: str) -> Iterator[Row]:
    """A gated mean over the tokens of an entry; `csa` entries overlap, so each token gives two parts."""
    both = f"(2 {size})" if word == "csa" else size
    yield Row(f"{name}.position_bias", f"{RATES[word]} {both}", "", "fp32")
    yield from unpacked(linear(f"{name}.kv_proj", both, "h"))
    yield from unpacked(linear(f"{name}.gate_proj", both, "h"))
    yield from wide(rms_norm(f"{name}.kv_norm", size))
    yield from rotary_rows(f"{name}.rotary_emb")


def rotary_rows(name: str) -> Iterator[Row]:
    for what in ("main", "compress"):
        for kind in ("inv_freq", "original_inv_freq"):
            yield from buffer(f"{name}.{what}_{kind}", "dr/2", "fp32")


def wide(rows: Iterator[Row]) -> Iterator[Row]:
    """Norms that stay in fp32."""
    return (row._replace(dtype="fp32") for row in rows)


def states(m: Structure, kind: str) -> Iterator[tuple[str, str, str]]:
    """What a layer caches after the prompt, as the caches' shapes say. Letters: see `compressed_tokens`."""
    word = kind.partition(",")[0]
    yield "window", "()", "int64"
    if word == "sliding":
        yield "keys", "b 1 zw d", ""
        yield "values", "b 1 zw d", ""
        return
    yield "keys and values", "b 1 zw d", ""
    yield from entries("compressor", "d", word)
    if word == "csa":
        yield from entries("indexer", "di", word)


def entries(name: str, size: str, word: str) -> Iterator[tuple[str, str, str]]:
    """Compressed entries, tokens that wait for theirs, and what the next entry needs of the last."""
    both = f"(2 {size})" if word == "csa" else size
    yield f"{name}/entries", f"b {RATES[word]}n {size}", ""
    yield f"{name}/waiting keys", f"b {RATES[word]}r {both}", ""
    yield f"{name}/waiting gates", f"b {RATES[word]}r {both}", ""
    if word == "csa":
        yield f"{name}/last keys", f"b zco {size}", ""
        yield f"{name}/last gates", f"b zco {size}", "fp32"
