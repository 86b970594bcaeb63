"""SigLIP's tower for pictures, without its pooling head: transformers 5.24, models/siglip/modeling_siglip.py.

Patches are (gi gi') in rows and columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

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


def block_rows(width: str = "hi", heads: str = "(ai di)", wide: str = "fi") -> Iterator[Row]:
    yield from layer_norm("layer_norm1", width)
    for part in "kvq":
        yield from linear(f"self_attn.{part}_proj", heads, width, True)
    yield from linear("self_attn.out_proj", width, heads, True)
    yield from layer_norm("layer_norm2", width)
    yield from linear("mlp.fc1", wide, width, True)
    yield from linear("mlp.fc2", width, wide, True)


def tower(m: Structure, pixels: Tensor) -> Tensor:
    """SiglipVisionModel without a head; m: the structure as this tower sees it."""
    return pooled(m, pixels, lambda last: last)[0]


def pooled(m: Structure, pixels: Tensor, head: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """The last hidden states, and what a head makes of them."""
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
    result = last, head(last)
    del hidden
    return result


def block(m: Structure, x: Tensor, widths: clip.Widths = clip.IMAGE) -> Tensor:
    residual = x
    x = weights.layer_norm(x, "layer_norm1")
    x, _ = attention(m, x, widths)
    x = add(residual, x)
    residual = x
    x = weights.layer_norm(x, "layer_norm2")
    x = clip.mlp(m, x)
    x = add(residual, x)
    return x


def attention(m: Structure, x: Tensor, widths: clip.Widths = clip.IMAGE) -> tuple[Tensor, Tensor | None]:
    _, heads, size = widths
    with scope("self_attn"):
        q, k, v = (split_heads(project(x, f"{part}_proj"), (("b",), (heads,), x.dims[1], (size,))) for part in "qkv")
        out, probabilities = attend(m, q, k, v, None, causal=False)
        out = project(out, "out_proj")
        return out, probabilities
