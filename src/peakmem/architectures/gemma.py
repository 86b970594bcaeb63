"""Gemma 1, as transformers 5.24 runs it (models/gemma/modeling_gemma.py), and what 2 and 3 share with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from peakmem.architectures import llama
from peakmem.architectures.definition import (
    Definition,
    Layers,
    Row,
    buffer,
    embedding,
    lm_head,
    rms_norm,
    rotary_buffers,
)
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.masks import layer_masks
from peakmem.estimate.positions import positions, rotary
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, rms_plus_one

MIRRORS = "transformers 5.24.0 models/gemma/modeling_gemma.py"


def define(m: Structure) -> Definition:
    yield from scaled_embedding()
    yield Layers("model.layers", lambda kind: llama.block_rows(m))
    yield from rms_norm("model.norm")
    yield from rotary_buffers(m)
    yield from lm_head(m)


def scaled_embedding() -> Iterator[Row]:
    """GemmaTextScaledWordEmbedding: an embedding and the number it is multiplied with."""
    yield from embedding("model.embed_tokens", "V", "h")
    yield from buffer("model.embed_tokens.embed_scale", "()")


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: model(m, ids), "model.embed_tokens")


def model(m: Structure, ids: Tensor, body: Callable[..., Tensor] | None = None,
          masked: Iterable[str] = ("full",), name: str = "model", inputs_embeds: Tensor | None = None,
          given: tuple[dict[str, Tensor | None], Tensor] | None = None) -> Tensor:
    """The decoder. body: its layer, where it is not Gemma 1's; masked: the kinds of layers that get masks.

    name: where it lies; inputs_embeds, given: what stands for the tokens' embeddings, its masks and positions.
    """
    with scope(name):
        if inputs_embeds is None:
            inputs_embeds = embed(ids, "embed_tokens", scaled=True)
        x = inputs_embeds
        if given is None:
            position_ids = positions()
            masks = layer_masks(m, x.dtype, masked)
        else:
            masks, position_ids = given
            if masks == {"full": None}:  # no mask is what a caller gives who has none, so it is made once more
                masks = layer_masks(m, x.dtype, masked)
        cos, sin = rotary(m, x.dtype)
        for kind in m.layers("layers"):
            x = m.layer(body or block, x, cos, sin, masks[kind], position_ids)
        x = rms_plus_one(x, "norm")
        del inputs_embeds
        return x


def block(m: Structure, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor | None,
          position_ids: Tensor) -> Tensor:
    residual = x
    x = rms_plus_one(x, "input_layernorm")
    x, probabilities = llama.attention(m, x, cos, sin, mask)
    x = residual + x
    residual = x
    x = rms_plus_one(x, "post_attention_layernorm")
    x = llama.mlp(m, x)
    x = residual + x
    del probabilities
    return x
