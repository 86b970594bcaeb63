"""ConvNeXt and ConvNeXt V2 for image classification, as transformers 5.24 runs them.

models/convnext/modeling_convnext.py, models/convnextv2/modeling_convnextv2.py. Stage l has ch{l} channels, and pl
pixels of the picture stand in one row of its; the channels come last in memory, behind the first norm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from peakmem.architectures.definition import Definition, Layers, Row, layer_norm, linear
from peakmem.architectures.picture_classifier import GENERATES, INPUTS, LOSSES, classified
from peakmem.estimate import weights
from peakmem.estimate.ops import activation, add, mul
from peakmem.estimate.pictures import mean_over, response_norm
from peakmem.estimate.shapes import swap
from peakmem.estimate.stochastic_depth import drop_path
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import convolution, project, weight

MIRRORS = "transformers 5.24.0 models/convnext/modeling_convnext.py"
CHECKPOINTS = False
SHARDS = False  # transformers names its stages as units, not its layers
__all__ = ["CHECKPOINTS", "GENERATES", "INPUTS", "LOSSES", "MIRRORS", "SHARDS", "define", "forward"]


def prefix(m: Structure) -> str:
    return "convnextv2" if m.has("response_norm") else "convnext"


def stages(m: Structure) -> int:
    """How many stages there are."""
    return len({kind.removesuffix(", first") for kind in m.kinds()})


def define(m: Structure) -> Definition:
    model = prefix(m)
    yield Row(f"{model}.embeddings.patch_embeddings.weight", "ch1 c p p'")
    yield Row(f"{model}.embeddings.patch_embeddings.bias", "ch1")
    yield from layer_norm(f"{model}.embeddings.layernorm", "ch1")
    for stage in range(1, stages(m) + 1):
        name, channels = f"{model}.encoder.stages.{stage - 1}", f"ch{stage}"
        if stage > 1:
            before = f"ch{stage - 1}"
            yield from layer_norm(f"{name}.downsampling_layer.0", before)
            yield Row(f"{name}.downsampling_layer.1.weight", f"{channels} {before} 2 2")
            yield Row(f"{name}.downsampling_layer.1.bias", channels)
        yield Layers(f"{name}.layers", block_rows(m, channels), f"stage {stage}")
    yield from layer_norm(f"{model}.layernorm", f"ch{stages(m)}")
    yield from linear("classifier", "C", f"ch{stages(m)}", True)


def block_rows(m: Structure, channels: str) -> Callable[[str], Iterator[Row]]:
    def rows(kind: str) -> Iterator[Row]:
        if m.has("layer_scale"):
            yield Row("layer_scale_parameter", channels)
        yield Row("dwconv.weight", f"{channels} 1 7 7")
        yield Row("dwconv.bias", channels)
        yield from layer_norm("layernorm", channels)
        yield from linear("pwconv1", f"4*{channels}", channels, True)
        if m.has("response_norm"):
            yield Row("grn.weight", f"1 1 1 4*{channels}")
            yield Row("grn.bias", f"1 1 1 4*{channels}")
        yield from linear("pwconv2", channels, f"4*{channels}", True)

    return rows


def forward(m: Structure, pixel_values: Tensor, labels: Tensor | None = None) -> Tensor:
    return classified(m, lambda: logits(m, pixel_values), labels)


def logits(m: Structure, pixels: Tensor) -> tuple[Tensor, ...]:
    hidden, pooled = model(m, pixels)
    return project(pooled, "classifier"), hidden, pooled


def model(m: Structure, pixels: Tensor) -> tuple[Tensor, Tensor]:
    with scope(prefix(m)):
        embedded = embeddings(pixels)
        x = encoder(m, embedded)
        return x, weights.layer_norm(mean_over(x, 2, 2), "layernorm")


def embeddings(pixels: Tensor) -> Tensor:
    with scope("embeddings"):
        x = convolution(pixels, "patch_embeddings", picture(1))
        return norm_of_channels(x, "layernorm", 1)


def picture(stage: int) -> str:
    return f"b ch{stage} i/p{stage} i/p{stage}'"


def rows(stage: int) -> str:
    """The same with the channels last."""
    return f"b i/p{stage} i/p{stage}' ch{stage}"


def norm_of_channels(x: Tensor, name: str, stage: int) -> Tensor:
    """ConvNextLayerNorm, channels_first."""
    x = swap(x, rows(stage))
    x = weights.layer_norm(x, name)
    return swap(x, picture(stage))


def encoder(m: Structure, x: Tensor) -> Tensor:
    with scope("encoder"):
        for stage in range(1, stages(m) + 1):
            given = x
            if stage > 1:
                with scope(f"stages.{stage - 1}.downsampling_layer"):
                    x = norm_of_channels(x, "0", stage - 1)
                    x = convolution(x, "1", picture(stage))
            for kind in m.layers(f"stages.{stage - 1}.layers", f"stage {stage}"):
                x = m.layer(block, x, stage, kind == "stage 1, first")
            del given
        return x


def block(m: Structure, x: Tensor, stage: int, whole: bool) -> Tensor:
    """whole: it is never left out."""
    residual = x
    x = convolution(x, "dwconv", picture(stage))
    x = swap(x, rows(stage))
    x = weights.layer_norm(x, "layernorm")
    x = project(x, "pwconv1")
    x = activation(x, m.activation)
    if m.has("response_norm"):
        with scope("grn"):
            x = response_norm(x)
    x = project(x, "pwconv2")
    if m.has("layer_scale"):
        x = mul(weight("layer_scale_parameter"), x)
    x = swap(x, picture(stage))
    x = add(residual, x if whole else drop_path(m, x))
    return x
