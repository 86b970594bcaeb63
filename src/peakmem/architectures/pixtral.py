"""Pixtral's tower for pictures of any size: transformers 5.24, models/pixtral/modeling_pixtral.py.

vi pictures of a sequence, each of (my ms) rows and (mx ms') columns of patches, of which (ms ms') are merged later. The
tn patches of all pictures are one sequence, in which a mask keeps pictures apart.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures import llama
from peakmem.architectures.definition import Definition, Layers, Row, buffer, linear, rms_norm
from peakmem.estimate.attention import attend
from peakmem.estimate.layout import dims
from peakmem.estimate.ops import add, cast
from peakmem.estimate.picture_tokens import unbound
from peakmem.estimate.positions import made, rotate
from peakmem.estimate.shapes import alias, cat, split_heads, swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import convolution, project, rms, weight

PATCHES = ("my", "ms", "mx", "ms'")


def rows(name: str) -> Definition:
    yield Row(f"{name}.patch_conv.weight", "hi c p p'")
    yield from rms_norm(f"{name}.ln_pre", "hi")
    yield Layers(f"{name}.transformer.layers", lambda kind: block_rows(), "image")
    for part in ("inv_freq", "original_inv_freq"):
        yield from buffer(f"{name}.patch_positional_embedding.{part}", "di/2", "fp32")


def block_rows() -> Iterator[Row]:
    yield from rms_norm("attention_norm", "hi")
    for part, outputs, inputs in (("gate", "fi", "hi"), ("up", "fi", "hi"), ("down", "hi", "fi")):
        yield from linear(f"feed_forward.{part}_proj", outputs, inputs)
    for part in "kvqo":
        yield from linear(f"attention.{part}_proj", *(("hi", "(ai di)") if part == "o" else ("(ai di)", "hi")))
    yield from rms_norm("ffn_norm", "hi")


def tower(m: Structure, pixels: Tensor, count: int) -> Tensor:
    """PixtralVisionModel; m: the structure as this tower sees it; count: of the pictures."""
    dtype = weight("patch_conv.weight").dtype
    x = convolution(cast(pixels, dtype), "patch_conv", "(b vi) hi (my ms) (mx ms')", inputs=True)
    parts = [alias(part) for part in unbound(x, count)]
    x = cat([swap(view(part, (("hi",), PATCHES)), (PATCHES, ("hi",))) for part in parts], "tn hi", "all patches")
    x = view(x, "1 tn hi")
    x = patch_embeds = rms(x, "ln_pre")
    numbers, besides = position_numbers(count)
    with scope("patch_positional_embedding"):
        cos, sin = axial_table(patch_embeds.dtype)
    mask = block_mask(patch_embeds.dtype)
    with scope("transformer"):
        for _ in m.layers("layers", "image"):
            x = m.layer(block, x, mask, cos, sin)
    del parts, patch_embeds, numbers, besides
    return x


def position_numbers(count: int) -> tuple[Tensor, list[Tensor]]:
    """Row and column of each patch, and what lives as long."""
    position_ids, besides = [], list[Tensor]()
    for _ in range(count):
        ways = [made("my ms", "int64", "numbers of the rows"), made("mx ms'", "int64", "numbers of the columns")]
        besides = ways
        rows = made("my ms mx ms'", "int64", "row of each patch")
        columns = made("my ms mx ms'", "int64", "column of each patch")
        position_ids.append(made("my ms mx ms' 2", "int64", "row and column of each patch"))
        del ways, rows, columns
    joined = made("tn 2", "int64", "rows and columns of all patches")
    del position_ids
    return joined, besides


def axial_table(dtype: str) -> tuple[Tensor, Tensor]:
    """PixtralVisionRotaryEmbedding.forward: angles of the rows and of the columns, side by side."""
    numbers = made("tn 2 1", "fp32", "rows and columns in fp32")
    angles = made("tn 2 di/2", "fp32", "angles")
    del numbers
    cos = made("tn 2 di/2", "fp32", "cosine")
    cos = made("tn 2 di/2", "fp32", "cosine table")
    sin = made("tn 2 di/2", "fp32", "sine")
    sin = made("tn 2 di/2", "fp32", "sine table")
    cos = recomposed("cosine")
    sin = recomposed("sine")
    tables = cast(cos, dtype), cast(sin, dtype)
    del angles
    return tables


def recomposed(name: str) -> Tensor:
    half = made("tn di/2", "fp32", f"{name} of rows and columns")
    whole = made("tn di", "fp32", f"{name} of rows and columns, twice")
    del half
    return whole


def block_mask(dtype: str) -> Tensor:
    """generate_block_attention_mask: 0 among the patches of a picture, the lowest number elsewhere."""
    return made("tn tn'", dtype, "mask of the pictures").seen_as(dims("1 1 tn tn'"))


def block(m: Structure, x: Tensor, mask: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    residual = x
    x = rms(x, "attention_norm")
    x, _ = attention(m, x, mask, cos, sin)
    x = add(residual, x)
    residual = x
    x = rms(x, "ffn_norm")
    x = llama.mlp(m, x, "feed_forward")
    x = add(residual, x)
    return x


def attention(m: Structure, x: Tensor, mask: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor | None]:
    with scope("attention"):
        q, k, v = (project(x, f"{part}_proj") for part in "qkv")
        shape = "1 ai tn di"
        q, k, v = split_heads(q, shape), split_heads(k, shape), split_heads(v, shape)
        cos, sin = cos.seen_as(dims("1 tn di")), sin.seen_as(dims("1 tn di"))
        q, k = rotate(q, cos, sin, "di/2"), rotate(k, cos, sin, "di/2")
        out, probabilities = attend(m, q, k, v, mask, causal=False)
        out = project(out, "o_proj")
        return out, probabilities
