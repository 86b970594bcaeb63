"""ResNet for image classification, as transformers 5.24 runs it (models/resnet/modeling_resnet.py).

Channels are ch0 behind the stem and ch1, ch2 … behind each stage; sides are halves of the picture's, rounded up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from peakmem.architectures.definition import Definition, Layers, Row, buffer, linear
from peakmem.architectures.picture_classifier import GENERATES, INPUTS, LOSSES, classified
from peakmem.estimate.inplace import add_into
from peakmem.estimate.ops import activation
from peakmem.estimate.pictures import batch_norm, max_pool, mean_over_picture
from peakmem.estimate.shapes import view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import convolution, project

MIRRORS = "transformers 5.24.0 models/resnet/modeling_resnet.py"
CHECKPOINTS = False
__all__ = ["CHECKPOINTS", "GENERATES", "INPUTS", "LOSSES", "MIRRORS", "define", "forward"]


def define(m: Structure) -> Definition:
    yield from conv_rows("resnet.embedder.embedder", "ch0", "c", 7)
    for stage in range(1, stages(m) + 1):
        yield Layers(f"resnet.encoder.stages.{stage - 1}.layers", block_rows(m, stage), f"stage {stage}")
    yield from linear("classifier.1", "C", f"ch{stages(m)}", True)


def stages(m: Structure) -> int:
    """How many stages there are."""
    return len({kind.removesuffix(", first") for kind in m.kinds()})


def conv_rows(name: str, outputs: str, inputs: str, kernel: int) -> Iterator[Row]:
    """ResNetConvLayer and ResNetShortCut: a convolution without bias, and a batch norm."""
    yield Row(f"{name}.convolution.weight", f"{outputs} {inputs}{twin(outputs, inputs)} {kernel} {kernel}")
    for part in ("weight", "bias"):
        yield Row(f"{name}.normalization.{part}", outputs, "norm")
    for part in ("running_mean", "running_var"):
        yield from buffer(f"{name}.normalization.{part}", outputs)
    yield from buffer(f"{name}.normalization.num_batches_tracked", "()", "int64")


def twin(outputs: str, inputs: str) -> str:
    return "'" if outputs == inputs else ""


def block_rows(m: Structure, stage: int) -> Callable[[str], Iterator[Row]]:
    def rows(kind: str) -> Iterator[Row]:
        first = kind.endswith("first")
        inputs, outputs = f"ch{stage - 1 if first else stage}", f"ch{stage}"
        if first and has_shortcut(m, stage):
            yield from conv_rows("shortcut", outputs, inputs, 1)
        if m.has("basic_layers"):
            yield from conv_rows("layer.0", outputs, inputs, 3)
            yield from conv_rows("layer.1", outputs, outputs, 3)
        else:
            narrow = f"{outputs}/4"
            yield from conv_rows("layer.0", narrow, inputs, 1)
            yield from conv_rows("layer.1", narrow, narrow, 3)
            yield from conv_rows("layer.2", outputs, narrow, 1)

    return rows


def has_shortcut(m: Structure, stage: int) -> bool:
    """Whether a stage's first layer changes the shape."""
    return stage > 1 or m.has("first_shortcut")


def forward(m: Structure, pixel_values: Tensor, labels: Tensor | None = None) -> Tensor:
    return classified(m, lambda: logits(m, pixel_values), labels)


def logits(m: Structure, pixels: Tensor) -> tuple[Tensor, ...]:
    hidden, pooled = model(m, pixels)
    with scope("classifier"):
        return project(view(pooled, f"b ch{stages(m)}"), "1"), hidden, pooled


def model(m: Structure, pixels: Tensor) -> tuple[Tensor, Tensor]:
    with scope("resnet"):
        with scope("embedder"):
            embedded = stem(pixels)
        x = encoder(m, embedded)
        return x, mean_over_picture(x)


def stem(pixels: Tensor) -> Tensor:
    x = conv_layer(pixels, "embedder", "b ch0 i/2 i/2'")
    return max_pool(x, "b ch0 i/4 i/4'")


def encoder(m: Structure, x: Tensor) -> Tensor:
    with scope("encoder"):
        side = 4
        for stage in range(1, stages(m) + 1):
            given, stride = x, 2 if stage > 1 or m.has("first_stride") else 1
            for kind in m.layers(f"stages.{stage - 1}.layers", f"stage {stage}"):
                before = f"i/{side}"
                side *= stride if kind.endswith("first") else 1
                x = m.layer(basic if m.has("basic_layers") else bottleneck, x, stage, kind.endswith("first"), before,
                            f"i/{side}")
            del given
        return x


def conv_layer(x: Tensor, name: str, target: str, activated: bool = True) -> Tensor:
    with scope(name):
        x = convolution(x, "convolution", target)
        x = batch_norm(x, "normalization")
        return activation(x, "relu") if activated else x


def bottleneck(m: Structure, x: Tensor, stage: int, first: bool, before: str, after: str) -> Tensor:
    """A narrow 3×3 convolution between two of 1×1; the second halves the picture, or the first."""
    residual = x
    narrow, early = f"ch{stage}/4", after if m.has("early_stride") else before
    x = conv_layer(x, "layer.0", f"b {narrow} {early} {early}'")
    x = conv_layer(x, "layer.1", f"b {narrow} {after} {after}'")
    x = conv_layer(x, "layer.2", f"b ch{stage} {after} {after}'", False)
    return joined(m, x, residual, stage, first, after)


def basic(m: Structure, x: Tensor, stage: int, first: bool, before: str, after: str) -> Tensor:
    residual = x
    x = conv_layer(x, "layer.0", f"b ch{stage} {after} {after}'")
    x = conv_layer(x, "layer.1", f"b ch{stage} {after} {after}'", False)
    return joined(m, x, residual, stage, first, after)


def joined(m: Structure, x: Tensor, residual: Tensor, stage: int, first: bool, after: str) -> Tensor:
    if first and has_shortcut(m, stage):
        residual = conv_layer(residual, "shortcut", f"b ch{stage} {after} {after}'", False)
    x = add_into(x, residual)
    x = activation(x, m.activation)
    return x
