"""Cohere's Command-R, as transformers 5.24 runs it (models/cohere/modeling_cohere.py): one norm, two branches."""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures import llama
from peakmem.architectures.definition import Definition, Row, attention_rows, decoder, gated_rows, rms_norm
from peakmem.estimate.attention import attend
from peakmem.estimate.inference import cached
from peakmem.estimate.interleaved import pair_table, rotate_pairs
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.masks import layer_masks
from peakmem.estimate.norms import centred_norm
from peakmem.estimate.ops import cast
from peakmem.estimate.positions import positions
from peakmem.estimate.shapes import swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, project

MIRRORS = "transformers 5.24.0 models/cohere/modeling_cohere.py"


def define(m: Structure) -> Definition:
    yield from decoder(m, lambda kind: block_rows(m))


def block_rows(m: Structure) -> Iterator[Row]:
    biased = m.has("attention_bias")
    yield from attention_rows(biased, m.has("output_bias"))
    if m.has("qk_norm"):
        yield from rms_norm("self_attn.q_norm", "a d")
        yield from rms_norm("self_attn.k_norm", "k d")
    yield from gated_rows()
    yield from rms_norm("input_layernorm")


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: model(m, ids), "model.embed_tokens")


def model(m: Structure, ids: Tensor, masked: tuple[str, ...] = ("full",)) -> Tensor:
    """masked: the kinds of layers that get masks; where some slide, the others do not turn queries and keys."""
    with scope("model"):
        x = inputs_embeds = embed(ids, "embed_tokens")
        position_ids = positions()
        masks = layer_masks(m, x.dtype, masked)
        cos, sin = pair_table(x.dtype)
        for kind in m.layers("layers"):
            turns = len(masked) == 1 or kind == "sliding"
            x = m.layer(block, x, masks[kind], cos, sin, position_ids, turns)
        x = centred_norm(x, "norm")
        del inputs_embeds
        return x


def block(m: Structure, x: Tensor, mask: Tensor | None, cos: Tensor, sin: Tensor, position_ids: Tensor,
          turns: bool) -> Tensor:
    residual = x
    x = centred_norm(x, "input_layernorm")
    attended, _ = attention(m, x, mask, cos, sin, turns)
    fed_forward = llama.mlp(m, x)
    x = residual + attended + fed_forward
    return x


def attention(m: Structure, x: Tensor, mask: Tensor | None, cos: Tensor, sin: Tensor,
              turns: bool) -> tuple[Tensor, Tensor | None]:
    with scope("self_attn"):
        q = view(project(x, "q_proj"), "b s a d")
        k = view(project(x, "k_proj"), "b s k d")
        v = view(project(x, "v_proj"), "b s k d")
        if m.has("qk_norm"):
            q = centred_norm(q, "q_norm")
            k = centred_norm(k, "k_norm")
        q, k, v = swap(q, "b a s d"), swap(k, "b k s d"), swap(v, "b k s d")
        if turns:
            q, k = turned(q, k, cos, sin)
        k, v = cached(m, k, v)
        out, probabilities = attend(m, q, k, v, mask)
        out = project(out, "o_proj")
        return out, probabilities


def turned(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """apply_rotary_pos_emb: q and k in fp32, cast back when both are done."""
    dtype = q.dtype
    q = cast(q, "fp32")
    k = cast(k, "fp32")
    q_embed = rotate_pairs(q, cos, sin, "d/2")
    k_embed = rotate_pairs(k, cos, sin, "d/2")
    return cast(q_embed, dtype), cast(k_embed, dtype)
