"""CLIP, as transformers 5.24 runs it (models/clip/modeling_clip.py): a tower for pictures, one for captions.

Letters with an i belong to the tower of pictures; its layers run first.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.definition import Definition, Layers, Row, buffer, embedding, layer_norm, linear
from peakmem.estimate import weights
from peakmem.estimate.attention import attend
from peakmem.estimate.contrastive import all_pairs, both_directions, unit
from peakmem.estimate.masks import causal_mask
from peakmem.estimate.ops import activation, add, cast
from peakmem.estimate.positions import made, rows_of_buffer
from peakmem.estimate.shapes import cat, expand, index, select, split_heads, swap
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import convolution, embed, project, weight

MIRRORS = "transformers 5.24.0 models/clip/modeling_clip.py"
INPUTS = {"input_ids": ("b s", "int64"), "pixel_values": ("b c i i'", "")}
LOSSES = ("upcast",)
GENERATES = False

Widths = tuple[str, str, str]
TEXT: Widths = "h", "a", "d"
IMAGE: Widths = "hi", "ai", "di"


def define(m: Structure) -> Definition:
    yield Row("logit_scale", "()")
    yield from embedding("text_model.embeddings.token_embedding", "V", "h")
    yield from embedding("text_model.embeddings.position_embedding", "P", "h")
    yield from buffer("text_model.embeddings.position_ids", "1 P", "int64")
    yield Layers("text_model.encoder.layers", lambda kind: block_rows("h", "(a d)", "f"), "text")
    yield from layer_norm("text_model.final_layer_norm")
    yield from vision_rows("vision_model")
    yield from linear("visual_projection", "D", "hi")
    yield from linear("text_projection", "D", "h")


def vision_rows(name: str) -> Definition:
    yield Row(f"{name}.embeddings.class_embedding", "hi")
    yield Row(f"{name}.embeddings.patch_embedding.weight", "hi c p p'")
    yield from embedding(f"{name}.embeddings.position_embedding", "si", "hi")
    yield from buffer(f"{name}.embeddings.position_ids", "1 si", "int64")
    yield from layer_norm(f"{name}.pre_layrnorm", "hi")
    yield Layers(f"{name}.encoder.layers", lambda kind: block_rows("hi", "(ai di)", "fi"), "image")
    yield from layer_norm(f"{name}.post_layernorm", "hi")


def block_rows(width: str, heads: str, wide: str) -> Iterator[Row]:
    for part in "kvq":
        yield from linear(f"self_attn.{part}_proj", heads, width, True)
    yield from linear("self_attn.out_proj", width, heads, True)
    yield from layer_norm("layer_norm1", width)
    yield from linear("mlp.fc1", wide, width, True)
    yield from linear("mlp.fc2", width, wide, True)
    yield from layer_norm("layer_norm2", width)


def forward(m: Structure, input_ids: Tensor, pixel_values: Tensor) -> Tensor:
    seen, image_embeds = image_features(m, pixel_values)
    read, text_embeds = text_features(m, input_ids)
    projected = image_embeds, text_embeds
    image_embeds = unit(image_embeds)
    text_embeds = unit(text_embeds)
    logits = all_pairs(text_embeds, image_embeds, weight("logit_scale"))
    result = both_directions(logits) if m.run == "training" else logits
    del seen, read, projected
    return result


def image_features(m: Structure, pixels: Tensor) -> tuple[Tensor, Tensor]:
    """The last hidden states, and the projected first token of them."""
    with scope("vision_model"):
        x, pooled = vision(m.tower("image"), pixels)
    return x, project(pooled, "visual_projection")


def vision(m: Structure, pixels: Tensor) -> tuple[Tensor, Tensor]:
    """CLIPVisionModel; m: the structure as this tower sees it."""
    hidden = image_embeddings(pixels)
    hidden = weights.layer_norm(hidden, "pre_layrnorm")
    x = encoder(m, hidden, None, "image", IMAGE)
    pooled = select(x, 1)
    pooled = weights.layer_norm(pooled, "post_layernorm")
    return x, pooled


def image_embeddings(pixels: Tensor) -> Tensor:
    with scope("embeddings"):
        patches = convolution(cast(pixels, weight("patch_embedding.weight").dtype), "patch_embedding", "b hi N",
                              inputs=True)
        patches = swap(patches, "b N hi")
        token = expand(weight("class_embedding"), "b 1 hi")
        x = cat([token, patches], "b si hi", "class token and patches")
        x = add(x, embed(rows_of_buffer("si"), "position_embedding", inputs=False))
        return x


def text_features(m: Structure, ids: Tensor) -> tuple[Tensor, Tensor]:
    """The last hidden states, and the projected last token of each caption."""
    with scope("text_model"):
        x, pooled = text(m, ids)
    return x, project(pooled, "text_projection")


def text(m: Structure, ids: Tensor) -> tuple[Tensor, Tensor]:
    """CLIPTextModel."""
    with scope("embeddings"):
        hidden = text_embeddings(ids)
    mask = causal_mask(m, hidden.dtype, packed=False)
    encoded = encoder(m, hidden, mask, "text", TEXT)
    x = weights.layer_norm(encoded, "final_layer_norm")
    pooled = index(x, made("b", "int64", "numbers of the captions"), "b h", also=ends(m))
    del encoded
    return x, pooled


def text_embeddings(ids: Tensor) -> Tensor:
    tokens = embed(ids, "token_embedding")
    positions = embed(rows_of_buffer(), "position_embedding", inputs=False)
    return add(tokens, positions)


def ends(m: Structure) -> Tensor:
    """Where each caption's last token is: its number is the largest, or is looked for."""
    numbers = made("b s", "int32", "tokens in 32 bit")
    if not m.has("old_end_token"):
        found = made("b s", "bool", "last tokens")
        del numbers
        numbers = made("b s", "int32", "last tokens as numbers")
        del found
    places = made("b", "int64", "places of the last tokens")
    del numbers
    return places


def encoder(m: Structure, x: Tensor, mask: Tensor | None, stack: str, widths: Widths) -> Tensor:
    with scope("encoder"):
        for _ in m.layers("layers", stack):
            x = m.layer(block, x, mask, widths)
    return x


def block(m: Structure, x: Tensor, mask: Tensor | None, widths: Widths) -> Tensor:
    residual = x
    x = weights.layer_norm(x, "layer_norm1")
    x, _ = attention(m, x, mask, widths)
    x = add(residual, x)
    residual = x
    x = weights.layer_norm(x, "layer_norm2")
    x = mlp(m, x)
    x = add(residual, x)
    return x


def attention(m: Structure, x: Tensor, mask: Tensor | None, widths: Widths) -> tuple[Tensor, Tensor | None]:
    width, heads, size = widths
    with scope("self_attn"):
        shape = f"b {heads} {x.dims[1][0]} {size}"
        q, k, v = (project(x, f"{part}_proj") for part in "qkv")
        q, k, v = split_heads(q, shape), split_heads(k, shape), split_heads(v, shape)
        out, probabilities = attend(m, q, k, v, mask, causal=width == "h")
        out = project(out, "out_proj")
        return out, probabilities


def mlp(m: Structure, x: Tensor) -> Tensor:
    with scope("mlp"):
        x = project(x, "fc1")
        x = activation(x, m.activation)
        return project(x, "fc2")
