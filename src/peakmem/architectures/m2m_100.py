"""M2M100 and NLLB, as transformers 5.24 runs them (models/m2m_100/modeling_m2m_100.py): mBART's layers.

Positions are counted from the tokens that are no padding, and looked up in a buffer.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.bart import INPUTS, LOSSES, embed_tokens, head, rows, trained
from peakmem.architectures.definition import Definition, Row, buffer
from peakmem.architectures.mbart import decoder_block, encoder_block
from peakmem.estimate import weights
from peakmem.estimate.masks import padded_target_mask
from peakmem.estimate.ops import add, dropout
from peakmem.estimate.positions import made
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope

MIRRORS = "transformers 5.24.0 models/m2m_100/modeling_m2m_100.py"
__all__ = ["INPUTS", "LOSSES", "MIRRORS", "decode", "define", "encode", "forward"]


def define(m: Structure) -> Definition:
    yield from rows(m, table, last_norm=True, biased=False)


def table(name: str) -> Iterator[Row]:
    return buffer(f"{name}.weights", "P h")


def forward(m: Structure, input_ids: Tensor, labels: Tensor) -> Tensor:
    return trained(m, input_ids, labels, encode, decoder, biased=False)


def decode(m: Structure, ids: Tensor, encoded: Tensor) -> Tensor:
    return head(m, decoder(m, ids, encoded), biased=False)


def encode(m: Structure, ids: Tensor) -> Tensor:
    with scope("model.encoder"):
        inputs_embeds = embed_tokens(m, ids)
        embed_pos = placed(m, "s")
        x = add(inputs_embeds, embed_pos)
        x = dropout(x, m.drops("embedding"))
        for _ in m.layers("layers", "encoder"):
            x = m.layer(encoder_block, x)
        return weights.layer_norm(x, "layer_norm")


def decoder(m: Structure, ids: Tensor, encoded: Tensor) -> Tensor:
    with scope("model.decoder"):
        inputs_embeds = embed_tokens(m, ids)
        padding = made("b t'", "fp32", "attention mask of ones")
        mask = padded_target_mask(m, inputs_embeds.dtype)
        del padding
        positions = placed(m, "t")
        x = add(inputs_embeds, positions)
        x = dropout(x, m.drops("embedding"))
        for _ in m.layers("layers", "decoder"):
            x = m.layer(decoder_block, x, mask, encoded)
        return weights.layer_norm(x, "layer_norm")


def placed(m: Structure, at: str) -> Tensor:
    """M2M100SinusoidalPositionalEmbedding, whose table lies in fp32 where a policy casts parameters."""
    mask = made(f"b {at}", "bool", "what is no padding")
    mask = made(f"b {at}", "int32", "what is no padding, as numbers")
    counted = made(f"b {at}", "int64", "tokens so far")
    for name in ("tokens so far, as mask", "with those before", "positions of tokens"):
        counted = made(f"b {at}", "int32", name)
    ids = made(f"b {at}", "int64", "positions")
    ids = made(f"b {at}", "int64", "position ids")
    del mask, counted
    found = made(f"b {at} h", m.shard_dtype or m.dtype, "positions")
    del ids
    return found
