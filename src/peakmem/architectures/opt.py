"""OPT, as transformers 5.24 runs it (models/opt/modeling_opt.py)."""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures import opt_older
from peakmem.architectures.definition import Definition, Layers, Row, embedding, layer_norm, linear
from peakmem.estimate import weights
from peakmem.estimate.attention import attend
from peakmem.estimate.inference import cached
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.masks import causal_mask
from peakmem.estimate.ops import activation, add, dropout, scale
from peakmem.estimate.positions import made
from peakmem.estimate.shapes import split_heads, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, project

MIRRORS = "transformers 5.24.0 models/opt/modeling_opt.py"


def define(m: Structure) -> Definition:
    narrow, biased = m.has("narrow_embedding"), m.has("norm_affine")
    width = "e" if narrow else "h"
    yield from embedding("model.decoder.embed_tokens", "V", width)
    yield from embedding("model.decoder.embed_positions", "P", "h")
    if narrow:
        yield from linear("model.decoder.project_out", "e", "h")
        yield from linear("model.decoder.project_in", "h", "e")
    if m.has("final_norm") and biased:
        yield from layer_norm("model.decoder.final_layer_norm")
    yield Layers("model.decoder.layers", lambda kind: block_rows(m))
    if not m.has("tied"):
        yield from linear("lm_head", "V", width)


def block_rows(m: Structure) -> Iterator[Row]:
    biased = m.has("mlp_bias")
    for name in ("k_proj", "v_proj", "q_proj"):
        yield from linear(f"self_attn.{name}", "(a d)", "h", biased)
    yield from linear("self_attn.out_proj", "h", "(a d)", biased)
    if m.has("norm_affine"):
        yield from layer_norm("self_attn_layer_norm")
    yield from linear("fc1", "f", "h", biased)
    yield from linear("fc2", "h", "f", biased)
    if m.has("norm_affine"):
        yield from layer_norm("final_layer_norm")


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: model(m, ids), "model.decoder.embed_tokens")


def model(m: Structure, ids: Tensor) -> Tensor:
    with scope("model.decoder"):
        inputs_embeds = embed(ids, "embed_tokens")
        padding = made("b s", "fp32", "attention mask of ones")
        position_ids = counted(padding)
        mask = causal_mask(m, inputs_embeds.dtype, packed=False)
        pos_embeds = embed(made("b s", "int64", "positions + 2"), "embed_positions", inputs=False)
        if m.has("narrow_embedding"):
            inputs_embeds = project(inputs_embeds, "project_in")
        x = add(inputs_embeds, pos_embeds)
        for _ in m.layers("layers"):
            x = m.layer(block, x, mask, position_ids)
        if m.has("final_norm"):
            x = weights.layer_norm(x, "final_layer_norm")
        if m.has("narrow_embedding"):
            x = project(x, "project_out")
        del padding
        return x


def counted(padding: Tensor) -> Tensor:
    """cumsum of the mask, times the mask, minus one, as integers."""
    numbers = made("b s", "fp32", "tokens so far")
    product = made("b s", "fp32", "tokens so far, masked")
    numbers_from_zero = made("b s", "fp32", "positions")
    del product
    position_ids = made("b s", "int64", "position ids")
    del numbers, numbers_from_zero
    return position_ids


def block(m: Structure, x: Tensor, mask: Tensor | None, position_ids: Tensor) -> Tensor:
    before = m.has("norm_before")
    residual = x
    if before:
        x = weights.layer_norm(x, "self_attn_layer_norm")
    if m.has("heads_copied"):
        x = opt_older.attention(m, x, mask)
    else:
        x, _ = attention(m, x, mask)  # the layer holds the probabilities until it returns
    x = dropout(x, m.drops("hidden"))
    x = add(residual, x)
    if not before:
        x = weights.layer_norm(x, "self_attn_layer_norm")
    shape = x.dims
    x = view(x, "(b s) h")
    residual = x
    if before:
        x = weights.layer_norm(x, "final_layer_norm")
    x = project(x, "fc1")
    x = activation(x, m.activation)
    x = project(x, "fc2")
    x = dropout(x, m.drops("hidden"))
    x = view(add(residual, x), shape)
    if not before:
        x = weights.layer_norm(x, "final_layer_norm")
    return x


def attention(m: Structure, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    with scope("self_attn"):
        q = scale(project(x, "q_proj"), "queries, scaled")
        q = split_heads(q, "b a s d")
        k, v = project(x, "k_proj"), project(x, "v_proj")
        k, v = split_heads(k, "b a s d"), split_heads(v, "b a s d")
        k, v = cached(m, k, v)
        out, probabilities = attend(m, q, k, v, mask)
        out = project(out, "out_proj")
        return out, probabilities
