"""Pegasus, as transformers 5.24 runs it (models/pegasus/modeling_pegasus.py): mBART's layers, Marian's embeddings."""

from __future__ import annotations

from peakmem.architectures.bart import INPUTS, LOSSES, counted, fixed, head, rows, trained
from peakmem.architectures.definition import Definition
from peakmem.architectures.marian import scaled_tokens
from peakmem.architectures.mbart import decoder_block, encoder_block
from peakmem.estimate import weights
from peakmem.estimate.masks import padded_target_mask
from peakmem.estimate.ops import add, dropout
from peakmem.estimate.positions import made
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed

MIRRORS = "transformers 5.24.0 models/pegasus/modeling_pegasus.py"
__all__ = ["INPUTS", "LOSSES", "MIRRORS", "decode", "define", "encode", "forward"]


def define(m: Structure) -> Definition:
    yield from rows(m, fixed, last_norm=True)


def forward(m: Structure, input_ids: Tensor, labels: Tensor) -> Tensor:
    return trained(m, input_ids, labels, encode, decoder)


def decode(m: Structure, ids: Tensor, encoded: Tensor) -> Tensor:
    return head(m, decoder(m, ids, encoded))


def encode(m: Structure, ids: Tensor) -> Tensor:
    with scope("model.encoder"):
        inputs_embeds = scaled_tokens(m, ids)
        embed_pos = embed(made("s", "int64", "position ids"), "embed_positions", inputs=False)
        x = add(inputs_embeds, embed_pos)
        x = dropout(x, m.drops("embedding"))
        for _ in m.layers("layers", "encoder"):
            x = m.layer(encoder_block, x)
        return weights.layer_norm(x, "layer_norm")


def decoder(m: Structure, ids: Tensor, encoded: Tensor) -> Tensor:
    with scope("model.decoder"):
        inputs_embeds = scaled_tokens(m, ids)
        position_ids = counted()
        padding = made("b t'", "fp32", "attention mask of ones")
        mask = padded_target_mask(m, inputs_embeds.dtype)
        placed = embed(position_ids, "embed_positions", inputs=False)
        x = add(inputs_embeds, placed)
        x = dropout(x, m.drops("embedding"))
        for _ in m.layers("layers", "decoder"):
            x = m.layer(decoder_block, x, mask, encoded)
        x = weights.layer_norm(x, "layer_norm")
        del padding
        return x
