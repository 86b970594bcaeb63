"""Idefics3 and SmolVLM, as transformers 5.24 runs them (models/idefics3/modeling_idefics3.py, models/smolvlm/).

SigLIP's tower looks at every tile by itself, and (qm qm') patches become one token. vi tiles of a sequence; (qt qt')
tokens of a tile. No tile is taken to be padding.
"""

from __future__ import annotations

from peakmem.architectures import clip, llama
from peakmem.architectures.definition import Definition, Layers, Row, embedding, layer_norm, linear
from peakmem.architectures.llava import beside
from peakmem.architectures.qwen_vl import reached
from peakmem.estimate import weights
from peakmem.estimate.attention import attend
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.ops import add, cast
from peakmem.estimate.picture_tokens import image_outputs, masked_scatter, one_by_one, placeholders
from peakmem.estimate.positions import made
from peakmem.estimate.shapes import cat, reshape, split_heads, swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, current, scope
from peakmem.estimate.weights import convolution, embed, project, weight

MIRRORS = "transformers 5.24.0 models/idefics3/modeling_idefics3.py"
INPUTS = {"input_ids": ("b s", "int64"), "pixel_values": ("b vi c i i'", "", "pictures"),
          "pixel_attention_mask": ("b vi i i'", "int64", "pictures"), "labels": ("b s", "int64")}
SHARDS = False  # as LLaVA
TEXT = "model.text_model"


def define(m: Structure) -> Definition:
    yield from reached(vision_rows(), m.has("pictures"))
    yield from reached(linear("model.connector.modality_projection.proj", "h", "(qm qm' hi)"), m.has("pictures"))
    yield from beside(llama.define(m), TEXT)


def vision_rows() -> Definition:
    yield Row("model.vision_model.embeddings.patch_embedding.weight", "hi c p p'")
    yield Row("model.vision_model.embeddings.patch_embedding.bias", "hi")
    yield from embedding("model.vision_model.embeddings.position_embedding", "(gi gi')", "hi")
    yield Layers("model.vision_model.encoder.layers", lambda kind: clip.block_rows("hi", "(ai di)", "fi"), "image")
    yield from layer_norm("model.vision_model.post_layernorm", "hi")


def forward(m: Structure, input_ids: Tensor, pixel_values: Tensor | None = None,
            pixel_attention_mask: Tensor | None = None, labels: Tensor | None = None) -> Tensor:
    returned = image_outputs(m)
    return causal_lm(m, lambda: model(m, input_ids, pixel_values, returned), f"{TEXT}.embed_tokens")


def model(m: Structure, ids: Tensor, pixels: Tensor | None, returned: list[Tensor]) -> Tensor:
    """Idefics3Model, SmolVLMModel."""
    masks = ("full", "sliding") if "sliding" in m.kinds() else ("full",)
    with scope(TEXT):
        inputs_embeds = embed(ids, "embed_tokens")
    if pixels is None:
        return llama.model(m, ids, masked=masks, name=TEXT, inputs_embeds=inputs_embeds)
    with scope("model"):
        last, features = image_features(m, pixels)
        returned += [last, *features]
        image_hidden_states = cat(features, "(b vi qt qt') h", "features of all tiles")
        image_hidden_states = cast(image_hidden_states, first_dtype())
        kept = placeholders("b s") if m.has("counts_tokens") else None
        inputs_embeds = merged(inputs_embeds, image_hidden_states, kept)
    x = llama.model(m, ids, masked=masks, name=TEXT, inputs_embeds=inputs_embeds)
    del last, features, image_hidden_states, kept
    return x


def merged(inputs_embeds: Tensor, features: Tensor, mask: Tensor | None) -> Tensor:
    """inputs_merger, which checks in one expression that there are as many tokens as features, where nobody has."""
    if mask is None:
        mask = made("b s", "bool", "places of tiles")
        features = cast(features, inputs_embeds.dtype)
        count = made("", "int64", "tokens of tiles")
        wanted = made("", "int64", "numbers of features that they take")
        del count
        equal = made("", "bool", "as many")
        del wanted
        every = made("", "bool", "all of them")
        del every, equal
    return masked_scatter(inputs_embeds, mask, features)


def image_features(m: Structure, pixels: Tensor) -> tuple[Tensor, list[Tensor]]:
    """get_image_features: the tower's last hidden states, and features of each sequence."""
    pixels = cast(pixels, first_dtype())
    real = real_tiles(m)
    each = made("b", "int64", "tiles of each sequence")
    seen = made("(b vi) c i i'", pixels.dtype, "tiles that are no padding")
    del pixels
    seen_mask = made("(b vi) i i'", "int64", "masks of those tiles")
    counted = made("(b vi) (qt qm) (qt' qm')", "int64", "pixels of each patch")
    mask = made("(b vi) (qt qm) (qt' qm')", "bool", "patches that are no padding")
    del counted
    with scope("vision_model"):
        last = tower(m.tower("image"), seen)
    with scope("connector"):
        x = connector(last)
    parts = one_by_one(x, m.number("sequences"), "vi")
    features = [reshape(part, "(vi qt qt') h") for part in parts]
    del parts, real, each, seen, seen_mask, mask
    return last, features


def first_dtype() -> str:
    """The dtype of a model is that of its first parameter."""
    return weight("vision_model.embeddings.patch_embedding.weight").dtype


def real_tiles(m: Structure) -> Tensor:
    """Which tiles are no padding: those that are not black."""
    black = made("(b vi) c i i'", "bool", "black pixels")
    counted = made("(b vi)", "int64", "black pixels of each tile")
    del black
    real = made("(b vi)", "bool", "tiles that are no padding")
    del counted
    if m.has("keeps_one"):
        found = made("", "bool", "any")
        none = made("", "bool", "none")
        del found, none
    return real


def tower(m: Structure, pixels: Tensor) -> Tensor:
    """Idefics3VisionTransformer; m: the structure as this tower sees it."""
    hidden = embeddings(pixels)
    every = made("", "bool", "all of them")
    del every
    x = hidden
    with scope("encoder"):
        for _ in m.layers("layers", "image"):
            x = m.layer(block, x)
    last = weights.layer_norm(x, "post_layernorm")
    del hidden
    return last


def embeddings(pixels: Tensor) -> Tensor:
    with scope("embeddings"):
        patches = swap(convolution(pixels, "patch_embedding", "(b vi) hi (qt qm qt' qm')"), "(b vi) (qt qm qt' qm') hi")
        numbers, besides = position_numbers()
        x = add(patches, embed(numbers, "position_embedding", inputs=False))
        if current().trains_inputs and not x.needs_grad:
            x = weights.leaf(x)
        del patches, besides
        return x


def position_numbers() -> tuple[Tensor, list[Tensor]]:
    """Where each patch lies on a grid as fine as the position table, by its share of the tile's sides; and what lives
    as long."""
    boundaries = made("qb", "fp32", "boundaries of the grid")
    numbers = made("(b vi) (qt qm qt' qm')", "int64", "zeros")
    counts = [made("(b vi)", "int64", f"{way} of patches") for way in ("rows", "columns")]
    steps = []
    for way in ("row", "column"):
        inverse = made("(b vi)", "fp32", f"shares of a {way}")
        steps.append(made("(b vi)", "fp32", f"shares of a {way}, scaled"))
        del inverse
    rows = [made("qt qm", "fp32", "row numbers").seen_as((("qt", "qm"),)),
            made("qt qm", "fp32", "column numbers").seen_as((("qt", "qm"),))]
    shares = [made("(b vi) (qt qm)", "fp32", f"shares of the {way}") for way in ("height", "width")]
    for i, way in enumerate(("height", "width")):
        shares[i] = made("(b vi) (qt qm)", "fp32", f"shares of the {way}, below one")
    buckets = [made("(b vi) (qt qm)", "int64", f"places in the {way}") for way in ("height", "width")]
    rows_before = made("(b vi) (qt qm) 1", "int64", "numbers before the row")
    places = made("(b vi) (qt qm) (qt' qm')", "int64", "numbers")
    del rows_before
    numbers = made("(b vi) (qt qm qt' qm')", "int64", "numbers of the positions")
    return numbers, [boundaries, *counts, *steps, *rows, *shares, *buckets, places]


def block(m: Structure, x: Tensor) -> Tensor:
    residual = x
    x = weights.layer_norm(x, "layer_norm1")
    x, _ = attention(m, x)
    x = add(residual, x)
    residual = x
    x = weights.layer_norm(x, "layer_norm2")
    x = clip.mlp(m, x)
    x = add(residual, x)
    return x


def attention(m: Structure, x: Tensor) -> tuple[Tensor, Tensor | None]:
    with scope("self_attn"):
        q, k, v = (split_heads(project(x, f"{part}_proj"), "(b vi) ai (qt qm qt' qm') di") for part in "qkv")
        out, probabilities = attend(m, q, k, v, None, causal=False)
        out = project(out, "out_proj")
        return out, probabilities


def connector(x: Tensor) -> Tensor:
    """Idefics3Connector: channels of (qm qm') patches side by side, then one product."""
    x = view(x, "(b vi) (qt qm) (qt' qm') hi")
    x = view(x, "(b vi) (qt qm) qt' (qm' hi)")
    x = reshape(swap(x, "(b vi) qt' (qt qm) (qm' hi)"), "(b vi) qt' qt (qm qm' hi)")
    x = reshape(swap(x, "(b vi) qt qt' (qm qm' hi)"), "(b vi) (qt qt') (qm qm' hi)")
    with scope("modality_projection"):
        return project(x, "proj")
