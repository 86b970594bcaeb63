"""Transformer2DModel on pictures, as diffusers 0.42 runs it (models/transformers/transformer_2d.py): pixels are tokens.

Each is a stack of its own, on a level of its UNet with ch{l} channels, a{l} heads of d{l}.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.definition import Definition, Layers, Row, layer_norm, linear
from peakmem.estimate import weights
from peakmem.estimate.attention import cudnn, efficient, flash, math
from peakmem.estimate.layout import Dims, dims
from peakmem.estimate.ops import activation, add, mul, scale
from peakmem.estimate.pictures import group_norm
from peakmem.estimate.shapes import contiguous, reshape, split, split_heads, swap
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import convolution, project


def side(level: int) -> str:
    """A side of the picture on this level."""
    return f"i/{2 ** (level - 1)}" if level > 1 else "i"


def picture(channels: str, level: int) -> str:
    return f"b {channels} {side(level)} {side(level)}'"


def conv_rows(name: str, outputs: str, inputs: str, kernel: int) -> Iterator[Row]:
    prime = "'" if outputs == inputs else ""
    yield Row(f"{name}.weight", f"{outputs} {inputs}{prime} {kernel} {kernel}")
    yield Row(f"{name}.bias", outputs)


def transformer_rows(m: Structure, name: str, stack: str, level: int) -> Definition:
    width = f"ch{level}"
    yield from layer_norm(f"{name}.norm", width)
    for part in ("proj_in", "proj_out"):
        if part == "proj_out":
            yield Layers(f"{name}.transformer_blocks", lambda kind: transformer_block_rows(level), stack)
        if m.has("linear_projection"):
            yield from linear(f"{name}.{part}", width, f"{width}'", True)
        else:
            yield from conv_rows(f"{name}.{part}", width, width, 1)


def transformer_block_rows(level: int) -> Iterator[Row]:
    width, heads = f"ch{level}", f"(a{level} d{level})"
    for i, read in enumerate((width, "cr"), 1):
        yield from layer_norm(f"norm{i}", width)
        for part in ("to_q", "to_k", "to_v"):
            yield from linear(f"attn{i}.{part}", heads, width if part == "to_q" else read)
        yield from linear(f"attn{i}.to_out.0", width, heads, True)
    yield from layer_norm("norm3", width)
    yield from linear("ff.net.0.proj", f"8*{width}", width, True)
    yield from linear("ff.net.2", width, f"4*{width}", True)


def transformer(m: Structure, x: Tensor, words: Tensor, stack: str, j: int, level: int) -> Tensor:
    """Transformer2DModel on a picture, where this place has one: pixels are tokens."""
    if stack not in m.kinds():
        return x
    with scope(f"attentions.{j}"):
        residual = x
        x = tokens_of(m, x, level)
        for _ in m.layers("transformer_blocks", stack):
            x = m.layer(block, x, words, level)
        return picture_of(m, x, residual, level)


def tokens_of(m: Structure, x: Tensor, level: int) -> Tensor:
    pixels = dims(f"b ({side(level)} {side(level)}') ch{level}")
    x = group_norm(x, "norm")
    if m.has("linear_projection"):
        x = reshape(swap(x, (*pixels[:1], *((letter,) for letter in pixels[1]), pixels[2])), pixels)
        return project(x, "proj_in")
    x = convolution(x, "proj_in", picture(f"ch{level}", level))
    return reshape(swap(x, (*pixels[:1], *((letter,) for letter in pixels[1]), pixels[2])), pixels)


def picture_of(m: Structure, x: Tensor, residual: Tensor, level: int) -> Tensor:
    rows: Dims = dims(f"b {side(level)} {side(level)}' ch{level}")
    target = picture(f"ch{level}", level)
    if m.has("linear_projection"):
        x = project(x, "proj_out")
        x = contiguous(swap(reshape(x, rows), target))
    else:
        x = contiguous(swap(reshape(x, rows), target))
        x = convolution(x, "proj_out", target)
    return add(x, residual)


def block(m: Structure, x: Tensor, words: Tensor, level: int) -> Tensor:
    """BasicTransformerBlock: pixels look at pixels, then at the words."""
    normed = weights.layer_norm(x, "norm1")
    attended = attention(m, normed, None, "attn1", level)
    x = add(attended, x)
    normed = weights.layer_norm(x, "norm2")
    attended = attention(m, normed, words, "attn2", level)
    x = add(attended, x)
    normed = weights.layer_norm(x, "norm3")
    fed = feed_forward(normed, f"4*ch{level}")
    return add(fed, x)


def attention(m: Structure, x: Tensor, words: Tensor | None, name: str, level: int) -> Tensor:
    """AttnProcessor2_0."""
    heads, size = (f"a{level}",), (f"d{level}",)
    with scope(name):
        residual, read = x, x if words is None else words
        q = project(x, "to_q")
        k, v = project(read, "to_k"), project(read, "to_v")
        q = split_heads(q, (q.dims[0], heads, q.dims[1], size))
        k = split_heads(k, (k.dims[0], heads, k.dims[1], size))
        v = split_heads(v, (v.dims[0], heads, v.dims[1], size))
        x = attend_all(m, q, k, v)
        x = reshape(swap(x, (x.dims[0], x.dims[2], heads, size)), (x.dims[0], x.dims[2], heads + size))
        x = project(x, "to_out.0")
        x = scale(x)
        del residual
        return x


def attend_all(m: Structure, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """scaled_dot_product_attention as it is called without a mask, every query looking everywhere: (b, a, s, d)."""
    kernel = m.kernel("full")
    if kernel == "math":
        return math(q, k, v, None, False, False, False)
    return flash(q, k, v, False) if kernel == "flash" else (efficient if kernel == "efficient" else cudnn)(q, k, v)


def feed_forward(x: Tensor, wide: str) -> Tensor:
    """FeedForward with GEGLU: half of what is projected is the gate of the other half."""
    with scope("ff"):
        with scope("net.0"):
            x = gated(project(x, "proj"), wide)
        return project(x, "net.2")


def gated(x: Tensor, wide: str) -> Tensor:
    x, gate = split(x, 2, [wide, wide])
    return mul(x, activation(gate, "gelu"))
