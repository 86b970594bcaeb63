"""Marian (Opus-MT), as transformers 5.24 runs it (models/marian/modeling_marian.py): BART with fixed positions."""

from __future__ import annotations

from peakmem.architectures.bart import (
    INPUTS,
    LOSSES,
    counted,
    decoder_block,
    encoder_block,
    fixed,
    head,
    rows,
    trained,
)
from peakmem.architectures.definition import Definition
from peakmem.estimate.losses import tied_to
from peakmem.estimate.masks import padded_target_mask
from peakmem.estimate.ops import add, dropout, scale
from peakmem.estimate.positions import made
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed

MIRRORS = "transformers 5.24.0 models/marian/modeling_marian.py"
__all__ = ["INPUTS", "LOSSES", "MIRRORS", "decode", "define", "encode", "forward"]


def define(m: Structure) -> Definition:
    yield from rows(m, fixed)


def forward(m: Structure, input_ids: Tensor, labels: Tensor) -> Tensor:
    return trained(m, input_ids, labels, encode, decoder)


def decode(m: Structure, ids: Tensor, encoded: Tensor) -> Tensor:
    return head(m, decoder(m, ids, encoded))


def scaled_tokens(m: Structure, ids: Tensor) -> Tensor:
    """Scaled outside the embedding, by one where nothing is to be scaled."""
    return scale(embed(ids, "embed_tokens", table=tied_to(m, "model.shared")), "embeddings, scaled")


def encode(m: Structure, ids: Tensor) -> Tensor:
    with scope("model.encoder"):
        inputs_embeds = scaled_tokens(m, ids)
        embed_pos = embed(made("s", "int64", "position ids"), "embed_positions", inputs=False)
        x = add(inputs_embeds, embed_pos)
        x = dropout(x, m.drops("embedding"))
        for _ in m.layers("layers", "encoder"):
            x = m.layer(encoder_block, x)
        return x


def decoder(m: Structure, ids: Tensor, encoded: Tensor) -> Tensor:
    with scope("model.decoder"):
        inputs_embeds = scaled_tokens(m, ids)
        placed = counted()
        padding = made("b t'", "fp32", "attention mask of ones")
        mask = padded_target_mask(m, inputs_embeds.dtype)
        placed = embed(placed, "embed_positions", inputs=False)
        x = add(inputs_embeds, placed)
        x = dropout(x, m.drops("embedding"))
        for _ in m.layers("layers", "decoder"):
            x = m.layer(decoder_block, x, mask, encoded)
        del padding
        return x
