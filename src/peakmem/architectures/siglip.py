"""SigLIP's tower for pictures, without its pooling head: transformers 5.24, models/siglip/modeling_siglip.py.

Patches are (gi gi') in rows and columns.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures import clip
from peakmem.architectures.definition import Definition, Layers, Row, buffer, embedding, layer_norm, linear
from peakmem.estimate import weights
from peakmem.estimate.attention import attend
from peakmem.estimate.layout import dims
from peakmem.estimate.ops import add, cast
from peakmem.estimate.positions import rows_of_buffer
from peakmem.estimate.shapes import split_heads, swap
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import convolution, embed, project, weight


def rows(name: str) -> Definition:
    yield Row(f"{name}.embeddings.patch_embedding.weight", "hi c p p'")
    yield Row(f"{name}.embeddings.patch_embedding.bias", "hi")
    yield from embedding(f"{name}.embeddings.position_embedding", "(gi gi')", "hi")
    yield from buffer(f"{name}.embeddings.position_ids", "1 (gi gi')", "int64")
    yield Layers(f"{name}.encoder.layers", lambda kind: block_rows(), "image")
    yield from layer_norm(f"{name}.post_layernorm", "hi")


def block_rows() -> Iterator[Row]:
    yield from layer_norm("layer_norm1", "hi")
    for part in "kvq":
        yield from linear(f"self_attn.{part}_proj", "(ai di)", "hi", True)
    yield from linear("self_attn.out_proj", "hi", "(ai di)", True)
    yield from layer_norm("layer_norm2", "hi")
    yield from linear("mlp.fc1", "fi", "hi", True)
    yield from linear("mlp.fc2", "hi", "fi", True)


def tower(m: Structure, pixels: Tensor) -> Tensor:
    """SiglipVisionModel; m: the structure as this tower sees it."""
    with scope("embeddings"):
        patches = convolution(cast(pixels, weight("patch_embedding.weight").dtype), "patch_embedding",
                              "b hi (gi gi')", inputs=True)
        patches = swap(patches, "b (gi gi') hi")
        places = rows_of_buffer("gi").seen_as(dims("1 (gi gi')"))
        hidden = add(patches, embed(places, "position_embedding", inputs=False))
        del patches
    x = hidden
    with scope("encoder"):
        for _ in m.layers("layers", "image"):
            x = m.layer(block, x)
    last = weights.layer_norm(x, "post_layernorm")
    del hidden
    return last


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
        q, k, v = (split_heads(project(x, f"{part}_proj"), "b ai (gi gi') di") for part in "qkv")
        out, probabilities = attend(m, q, k, v, None, causal=False)
        out = project(out, "out_proj")
        return out, probabilities
