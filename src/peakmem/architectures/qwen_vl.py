"""Qwen2.5-VL, Qwen3-VL and Qwen3-VL-MoE, as transformers 5.24 runs them (models/qwen3_vl/modeling_qwen3_vl.py and
its kin), on text alone: the tower stands by. Positions are counted in three ways, which text does not tell apart."""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures import llama, mixtral, qwen3_moe
from peakmem.architectures.definition import Definition, Layers, Row, buffer, embedding, layer_norm, linear, rms_norm
from peakmem.architectures.llava import TEXT, beside
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.ops import cast
from peakmem.estimate.positions import made
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor

MIRRORS = "transformers 5.24.0 models/qwen3_vl/modeling_qwen3_vl.py"
RUNS = ("inference",)


def define(m: Structure) -> Definition:
    yield from old_tower(m) if m.architecture == "qwen2_5_vl" else tower(m)
    yield from beside(qwen3_moe.define(m) if m.has("experts") else llama.define(m))


def old_tower(m: Structure) -> Definition:
    """Qwen2.5-VL's: norms without biases, a gate in each feed-forward."""
    yield Row("model.visual.patch_embed.proj.weight", "hi c pt p p'")
    yield from rotary_rows()
    yield Layers("model.visual.blocks", lambda kind: old_block_rows(), "image")
    yield from rms_norm("model.visual.merger.ln_q", "hi")
    yield from linear("model.visual.merger.mlp.0", "(pm hi)", "(pm hi)", True)
    yield from linear("model.visual.merger.mlp.2", "ho", "(pm hi)", True)


def old_block_rows() -> Iterator[Row]:
    yield from rms_norm("norm1", "hi")
    yield from rms_norm("norm2", "hi")
    yield from attention_rows()
    yield from linear("mlp.gate_proj", "fi", "hi", True)
    yield from linear("mlp.up_proj", "fi", "hi", True)
    yield from linear("mlp.down_proj", "hi", "fi", True)


def tower(m: Structure) -> Definition:
    """Qwen3-VL's: some layers' outputs are merged as well, for the first layers of the decoder."""
    yield Row("model.visual.patch_embed.proj.weight", "hi c pt p p'")
    yield Row("model.visual.patch_embed.proj.bias", "hi")
    yield from embedding("model.visual.pos_embed", "pp", "hi")
    yield from rotary_rows()
    yield Layers("model.visual.blocks", lambda kind: block_rows(), "image")
    yield from merger_rows("model.visual.merger", "hi")
    for i in range(m.number("nd")):
        yield from merger_rows(f"model.visual.deepstack_merger_list.{i}", "(pm hi)")


def block_rows() -> Iterator[Row]:
    yield from layer_norm("norm1", "hi")
    yield from layer_norm("norm2", "hi")
    yield from attention_rows()
    yield from linear("mlp.linear_fc1", "fi", "hi", True)
    yield from linear("mlp.linear_fc2", "hi", "fi", True)


def merger_rows(name: str, normed: str) -> Iterator[Row]:
    yield from layer_norm(f"{name}.norm", normed)
    yield from linear(f"{name}.linear_fc1", "(pm hi)", "(pm hi)", True)
    yield from linear(f"{name}.linear_fc2", "ho", "(pm hi)", True)


def attention_rows() -> Iterator[Row]:
    yield from linear("attn.qkv", "(3 ai di)", "hi", True)
    yield from linear("attn.proj", "hi", "(ai di)", True)


def rotary_rows() -> Iterator[Row]:
    for name in ("inv_freq", "original_inv_freq"):
        yield from buffer(f"model.visual.rotary_pos_emb.{name}", "di/4", "fp32")


def forward(m: Structure, ids: Tensor) -> Tensor:
    embedded = f"{TEXT}.embed_tokens"
    if m.has("experts"):
        return causal_lm(m, lambda: mixtral.model(m, ids, qwen3_moe.feed_forward(m), TEXT, grids), embedded)
    old = m.architecture == "qwen2_5_vl"
    masks = ("full", "sliding") if "sliding" in m.kinds() else ("full",)
    return causal_lm(m, lambda: llama.model(m, ids, masked=masks, name=TEXT, tables=joined_grids if old else grids,
                                            packed=not old), embedded)


def grids(m: Structure, dtype: str) -> tuple[Tensor, Tensor]:
    """Qwen3VLTextRotaryEmbedding.forward: tables for time, height and width; the latter two overwrite the first."""
    cos, sin, angles = three_tables()
    sin = made("b s d", "fp32", "sine twice")
    cos = made("b s d", "fp32", "cosine twice")
    tables = cast(cos, dtype), cast(sin, dtype)
    del angles
    return tables


def joined_grids(m: Structure, dtype: str) -> tuple[Tensor, Tensor]:
    """Qwen2_5_VLRotaryEmbedding.forward: parts of the tables for time, height and width, joined."""
    cos, sin, angles = three_tables()
    mixed = made("b s d/2", "fp32", "sine of three grids")
    sin = made("b s d", "fp32", "sine twice")
    del mixed
    mixed = made("b s d/2", "fp32", "cosine of three grids")
    cos = made("b s d", "fp32", "cosine twice")
    del mixed
    tables = cast(cos, dtype), cast(sin, dtype)
    del angles
    return tables


def three_tables() -> tuple[Tensor, Tensor, Tensor]:
    """Cosine and sine for each of the three ways, and the angles, which live as long as the caller runs."""
    numbers = made("3 b s 1", "fp32", "positions in fp32")
    angles = made("3 b s d/2", "fp32", "angles")
    del numbers
    cos = made("3 b s d/2", "fp32", "cosine")
    cos = made("3 b s d/2", "fp32", "cosine table")
    sin = made("3 b s d/2", "fp32", "sine")
    sin = made("3 b s d/2", "fp32", "sine table")
    return cos, sin, angles
