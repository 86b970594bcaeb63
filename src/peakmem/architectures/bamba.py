"""Bamba, as transformers 5.24 runs it (models/bamba/modeling_bamba.py): Mamba 2, now and then attention."""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.definition import (
    Definition,
    Layers,
    Row,
    attention_rows,
    embedding,
    gated_rows,
    lm_head,
    rms_norm,
    rotary_buffers,
)
from peakmem.architectures.llama import mlp
from peakmem.architectures.nemotron_h import mixer, mixer_rows
from peakmem.estimate.attention import attend
from peakmem.estimate.inference import cached
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.masks import causal_mask
from peakmem.estimate.positions import made, rotary, rotate_both
from peakmem.estimate.shapes import split_heads
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, project, rms

MIRRORS = "transformers 5.24.0 models/bamba/modeling_bamba.py, without mamba-ssm and causal-conv1d"


def define(m: Structure) -> Definition:
    yield from embedding("model.embed_tokens", "V", "h")
    yield Layers("model.layers", lambda kind: block_rows(m, kind))
    yield from rms_norm("model.final_layernorm")
    yield from rotary_buffers(m)
    yield from lm_head(m)


def block_rows(m: Structure, kind: str) -> Iterator[Row]:
    yield from gated_rows(m.has("mlp_bias"), "feed_forward")
    yield from rms_norm("input_layernorm")
    yield from rms_norm("pre_ff_layernorm")
    yield from mixer_rows(m, "mamba") if kind == "mamba" else attention_rows(m.has("attention_bias"))


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: model(m, ids), "model.embed_tokens")


def model(m: Structure, ids: Tensor) -> Tensor:
    """The decoder. Its loop keeps the probabilities of the last layer that it has run."""
    with scope("model"):
        x = inputs_embeds = embed(ids, "embed_tokens")
        position_ids = made("s", "int64", "position ids")
        mask = causal_mask(m, x.dtype)
        tables = rotary(m, x.dtype)
        probabilities = None
        for kind in m.layers("layers"):
            x, probabilities = m.both(block, x, mask if kind == "full" else None, position_ids, tables, kind)
        x = rms(x, "final_layernorm")
        del inputs_embeds, probabilities
        return x


def block(m: Structure, x: Tensor, mask: Tensor | None, position_ids: Tensor, tables: tuple[Tensor, Tensor],
          kind: str) -> tuple[Tensor, Tensor | None]:
    residual = x
    x = rms(x, "input_layernorm")
    probabilities = None
    if kind == "mamba":
        x = mixer(m, x, "mamba", m.activation)
    else:
        x, probabilities = attention(m, x, *tables, mask)
    x = residual + x
    residual = x
    x = rms(x, "pre_ff_layernorm")
    x = mlp(m, x, "feed_forward")
    return residual + x, probabilities


def attention(m: Structure, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """BambaAttention: half of each head is turned."""
    with scope("self_attn"):
        q = split_heads(project(x, "q_proj"), "b a s d")
        k = split_heads(project(x, "k_proj"), "b k s d")
        v = split_heads(project(x, "v_proj"), "b k s d")
        q, k = rotate_both(m, q, k, cos, sin)
        k, v = cached(m, k, v)
        out, probabilities = attend(m, q, k, v, mask)
        return project(out, "o_proj"), probabilities
