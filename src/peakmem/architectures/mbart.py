"""mBART, as transformers 5.24 runs it (models/mbart/modeling_mbart.py): BART with norms before the blocks.

Pegasus and M2M100 have its layers.
"""

from __future__ import annotations

from peakmem.architectures.bart import (
    INPUTS,
    LOSSES,
    attention,
    counted,
    embed_tokens,
    head,
    learned,
    placed_source,
    rows,
    trained,
)
from peakmem.architectures.definition import Definition
from peakmem.estimate import weights
from peakmem.estimate.clamping import clamp
from peakmem.estimate.masks import padded_target_mask
from peakmem.estimate.ops import activation, add, dropout
from peakmem.estimate.positions import made
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, project

MIRRORS = "transformers 5.24.0 models/mbart/modeling_mbart.py"
__all__ = ["INPUTS", "LOSSES", "MIRRORS", "decode", "define", "encode", "forward"]


def define(m: Structure) -> Definition:
    yield from rows(m, learned, embedding_norm=True, last_norm=True)


def forward(m: Structure, input_ids: Tensor, labels: Tensor) -> Tensor:
    return trained(m, input_ids, labels, encode, decoder, wrapped)


def decode(m: Structure, ids: Tensor, encoded: Tensor) -> Tensor:
    return head(m, decoder(m, ids, encoded))


def wrapped() -> Tensor:
    """shift_tokens_right: the last token that is no padding, a language, comes first."""
    result = made("b t", "int64", "decoder input ids")
    made("b t", "bool", "where labels are ignored")
    real = made("b t", "bool", "what is no padding")
    counts = made("b", "int64", "tokens that are no padding")
    del real
    last = made("b", "int64", "place of the last")
    del counts
    start = made("b 1", "int64", "start tokens")
    made("b t-1", "int64", "ids but the last")
    del last, start
    return result


def encode(m: Structure, ids: Tensor) -> Tensor:
    with scope("model.encoder"):
        inputs_embeds = embed_tokens(m, ids)
        embed_pos = placed_source()
        x = add(inputs_embeds, embed_pos)
        x = weights.layer_norm(x, "layernorm_embedding")
        x = dropout(x, m.drops("embedding"))
        for _ in m.layers("layers", "encoder"):
            x = m.layer(encoder_block, x)
        return weights.layer_norm(x, "layer_norm")


def decoder(m: Structure, ids: Tensor, encoded: Tensor) -> Tensor:
    with scope("model.decoder"):
        inputs_embeds = embed_tokens(m, ids)
        placed = counted()
        padding = made("b t'", "fp32", "attention mask of ones")
        mask = padded_target_mask(m, inputs_embeds.dtype)
        placed = embed(made("1 t", "int64", "positions + 2"), "embed_positions", inputs=False)
        x = add(inputs_embeds, placed)
        x = weights.layer_norm(x, "layernorm_embedding")
        x = dropout(x, m.drops("embedding"))
        for _ in m.layers("layers", "decoder"):
            x = m.layer(decoder_block, x, mask, encoded)
        x = weights.layer_norm(x, "layer_norm")
        del padding
        return x


def encoder_block(m: Structure, x: Tensor) -> Tensor:
    residual = x
    x = weights.layer_norm(x, "self_attn_layer_norm")
    x, _ = attention(m, x, x, "self_attn", None, False)
    x = dropout(x, m.drops("hidden"))
    x = add(residual, x)
    residual = x
    x = feed_forward(m, x)
    x = add(residual, x)
    if x.dtype == "fp16":
        x = clamp(x)
    return x


def decoder_block(m: Structure, x: Tensor, mask: Tensor | None, encoded: Tensor) -> Tensor:
    residual = x
    x = weights.layer_norm(x, "self_attn_layer_norm")
    x, _ = attention(m, x, x, "self_attn", mask, True)
    x = dropout(x, m.drops("hidden"))
    x = add(residual, x)
    residual = x
    x = weights.layer_norm(x, "encoder_attn_layer_norm")
    x, _ = attention(m, x, encoded, "encoder_attn", None, False)
    x = dropout(x, m.drops("hidden"))
    x = add(residual, x)
    residual = x
    x = feed_forward(m, x)
    x = add(residual, x)
    return x


def feed_forward(m: Structure, x: Tensor) -> Tensor:
    """With the norm before it."""
    x = weights.layer_norm(x, "final_layer_norm")
    x = activation(project(x, "fc1"), m.activation)
    x = dropout(x, m.drops("activation"))
    x = project(x, "fc2")
    x = dropout(x, m.drops("hidden"))
    return x
