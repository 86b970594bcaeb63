"""UNet2DConditionModel, as diffusers 0.42 runs it (models/unets/unet_2d_condition.py), of Stable Diffusion and its XL.

Level l has ch{l} channels, and sides of the picture's, halved l-1 times. What goes down is kept, and joined on the way
up. Each transformer is a stack of its own; its kinds of layers are named after its place: `down 1.0;`, `mid 0;`.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures.definition import Definition, Row, layer_norm, linear
from peakmem.architectures.picture_transformer import conv_rows, picture, transformer, transformer_rows
from peakmem.estimate.layout import dims
from peakmem.estimate.losses import squared_error
from peakmem.estimate.ops import activation, add, cast, scale
from peakmem.estimate.pictures import group_norm, upsample
from peakmem.estimate.positions import sinusoids
from peakmem.estimate.shapes import cat, reshape, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import convolution, project

MIRRORS = "diffusers 0.42.1 models/unets/unet_2d_condition.py"
INPUTS = {"sample": ("b c i i'", ""), "timestep": ("b", "int64"), "words": ("b s cr", ""),
          "added": ("b ad-6*at", "", "text_time"), "time_ids": ("b 6", "", "text_time"), "labels": ("b co i i'", "")}
LOSSES = ("upcast",)
GENERATES = EAGER = SHARDS = False


def define(m: Structure) -> Definition:
    levels = m.number("n_levels")
    yield from conv_rows("conv_in", "ch1", "c", 3)
    yield from embedding_rows("time_embedding", "ch1")
    if m.has("text_time"):
        yield from embedding_rows("add_embedding", "ad")
    for level in range(1, levels + 1):
        name = f"down_blocks.{level - 1}"
        yield from block_rows(m, name, f"down {level - 1}", level, down_inputs(m, level))
        if level < levels:
            yield from conv_rows(f"{name}.downsamplers.0.conv", f"ch{level}", f"ch{level}", 3)
    for level in range(levels, 0, -1):
        name = f"up_blocks.{levels - level}"
        yield from block_rows(m, name, f"up {levels - level}", level, up_inputs(m, level))
        if level > 1:
            yield from conv_rows(f"{name}.upsamplers.0.conv", f"ch{level}", f"ch{level}", 3)
    yield from block_rows(m, "mid_block", "mid 0", levels, [f"ch{levels}"] * 2)
    yield from layer_norm("conv_norm_out", "ch1")
    yield from conv_rows("conv_out", "co", "ch1", 3)


def down_inputs(m: Structure, level: int) -> list[str]:
    """The channels that each residual block of a level takes on the way down."""
    return [f"ch{max(level - 1, 1)}", *[f"ch{level}"] * (m.number(f"n_resnets{level}") - 1)]


def up_inputs(m: Structure, level: int) -> list[str]:
    """On the way up: those of the block before, and those that were kept."""
    count = m.number(f"n_resnets{level}") + 1
    before = f"ch{min(level + 1, m.number('n_levels'))}"
    kept = [*[f"ch{level}"] * (count - 1), f"ch{max(level - 1, 1)}"]
    return [f"{before if not j else f'ch{level}'}+{channels}" for j, channels in enumerate(kept)]


def block_rows(m: Structure, name: str, place: str, level: int, inputs: list[str]) -> Definition:
    """The transformers of a block, then its residual blocks."""
    for j in range(len(inputs)):
        stack = f"{place}.{j};"
        if any(kind == stack for kind in m.kinds()):
            yield from transformer_rows(m, f"{name}.attentions.{j}", stack, level)
    for j, channels in enumerate(inputs):
        yield from resnet_rows(m, f"{name}.resnets.{j}", f"{place}.{j}", f"ch{level}", channels)


def embedding_rows(name: str, inputs: str) -> Iterator[Row]:
    yield from linear(f"{name}.linear_1", "te", inputs, True)
    yield from linear(f"{name}.linear_2", "te", "te'", True)


def resnet_rows(m: Structure, name: str, place: str, outputs: str, inputs: str) -> Iterator[Row]:
    yield from layer_norm(f"{name}.norm1", inputs)
    yield from conv_rows(f"{name}.conv1", outputs, inputs, 3)
    yield from linear(f"{name}.time_emb_proj", outputs, "te", True)
    yield from layer_norm(f"{name}.norm2", outputs)
    yield from conv_rows(f"{name}.conv2", outputs, outputs, 3)
    if m.has(f"shortcut {place}"):
        yield from conv_rows(f"{name}.conv_shortcut", outputs, inputs, 1)


def forward(m: Structure, sample: Tensor, timestep: Tensor, words: Tensor, added: Tensor | None = None,
            time_ids: Tensor | None = None, labels: Tensor | None = None) -> Tensor:
    predicted = model(m, sample, words, added)
    del timestep, time_ids
    if labels is None:
        return predicted
    return squared_error(predicted, labels)


def model(m: Structure, sample: Tensor, words: Tensor, added: Tensor | None) -> Tensor:
    """sample: what is to be freed of noise; words: hidden states of a text; added: XL's pooled text."""
    levels = m.number("n_levels")
    t_emb = sinusoids("b", "ch1")
    t_emb = cast(t_emb, sample.dtype, "timesteps embedded")
    emb = embedding(t_emb, "time_embedding")
    if added is not None:
        aug_emb = added_embedding(emb, added)
        emb = add(emb, aug_emb)
    x = convolution(sample, "conv_in", picture("ch1", 1))
    kept = [x]
    for level in range(1, levels + 1):
        x = down_block(m, x, emb, words, level, kept)
    with scope("mid_block"):
        x = mid_block(m, x, emb, words, levels)
    for level in range(levels, 0, -1):
        count = m.number(f"n_resnets{level}") + 1
        joined = kept[-count:]
        del kept[-count:]
        x = up_block(m, x, emb, words, level, joined)
    x = group_norm(x, "conv_norm_out")
    x = activation(x, "silu")
    x = convolution(x, "conv_out", picture("co", 1))
    del joined
    return x


def embedding(x: Tensor, name: str) -> Tensor:
    """TimestepEmbedding: two linear layers."""
    with scope(name):
        x = project(x, "linear_1")
        x = activation(x, "silu")
        return project(x, "linear_2")


def added_embedding(emb: Tensor, added: Tensor) -> Tensor:
    """The pooled text, and the six numbers that XL is told of its picture."""
    time_embeds = sinusoids("b 6", "at", copied=added.dtype != "fp32")
    time_embeds = reshape(time_embeds, "b (6 at)")
    add_embeds = cat([added, time_embeds.seen_as(dims("b 6*at"))], "b ad", "pooled text and time ids")
    add_embeds = cast(add_embeds, emb.dtype, "pooled text and time ids in its dtype")
    return embedding(add_embeds, "add_embedding")


def down_block(m: Structure, x: Tensor, emb: Tensor, words: Tensor, level: int, kept: list[Tensor]) -> Tensor:
    with scope(f"down_blocks.{level - 1}"):
        for j, _ in enumerate(down_inputs(m, level)):
            x = residual_block(m, x, emb, f"down {level - 1}.{j}", j, level)
            x = transformer(m, x, words, f"down {level - 1}.{j};", j, level)
            kept.append(x)
        if level < m.number("n_levels"):
            x = convolution(x, "downsamplers.0.conv", picture(f"ch{level}", level + 1))
            kept.append(x)
        return x


def mid_block(m: Structure, x: Tensor, emb: Tensor, words: Tensor, level: int) -> Tensor:
    x = residual(m, x, emb, "resnets.0", "mid 0.0", level)  # never checkpointed
    x = transformer(m, x, words, "mid 0.0;", 0, level)
    return residual_block(m, x, emb, "mid 0.1", 1, level)


def up_block(m: Structure, x: Tensor, emb: Tensor, words: Tensor, level: int, joined: list[Tensor]) -> Tensor:
    number = m.number("n_levels") - level
    with scope(f"up_blocks.{number}"):
        for j, channels in enumerate(up_inputs(m, level)):
            skipped = joined[-1 - j]
            x = cat([x, skipped], picture(channels, level), "what came up and what was kept")
            x = residual_block(m, x, emb, f"up {number}.{j}", j, level)
            x = transformer(m, x, words, f"up {number}.{j};", j, level)
        if level > 1:
            x = upsampled(x, picture(f"ch{level}", level - 1))
        return x


def upsampled(x: Tensor, target: str) -> Tensor:
    with scope("upsamplers.0"):
        x = upsample(x, target)
        x = convolution(x, "conv", target)
        return x


def residual_block(m: Structure, x: Tensor, emb: Tensor, place: str, j: int, level: int) -> Tensor:
    return m.inside(residual, x, emb, f"resnets.{j}", place, level)


def residual(m: Structure, given: Tensor, temb: Tensor, name: str, place: str, level: int) -> Tensor:
    """ResnetBlock2D: the embedded timestep is added to every pixel of a channel."""
    target = picture(f"ch{level}", level)
    with scope(name):
        x = given
        x = group_norm(x, "norm1")
        x = activation(x, "silu")
        x = convolution(x, "conv1", target)
        temb = activation(temb, "silu")
        temb = view(project(temb, "time_emb_proj"), f"b ch{level} 1 1")
        x = add(x, temb)
        x = group_norm(x, "norm2")
        x = activation(x, "silu")
        x = convolution(x, "conv2", target)
        if m.has(f"shortcut {place}"):
            given = convolution(given, "conv_shortcut", target)
        return scale(add(given, x))
