"""DeiT for image classification, as transformers 5.24 runs it (models/deit/modeling_deit.py).

ViT with a second token in front, from which a teacher's answer was once learned.
"""

from __future__ import annotations

from peakmem.architectures import vit
from peakmem.architectures.definition import Definition, Layers, Row, layer_norm, linear
from peakmem.architectures.picture_classifier import GENERATES, INPUTS, LOSSES
from peakmem.estimate import weights
from peakmem.estimate.ops import add, dropout
from peakmem.estimate.picture_tokens import like_weight
from peakmem.estimate.shapes import cat, expand, select
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import weight

MIRRORS = "transformers 5.24.0 models/deit/modeling_deit.py"
__all__ = ["GENERATES", "INPUTS", "LOSSES", "MIRRORS", "define", "forward"]


def define(m: Structure) -> Definition:
    yield Row("deit.embeddings.cls_token", "1 1 h")
    yield Row("deit.embeddings.position_embeddings", "1 s h")
    yield Row("deit.embeddings.distillation_token", "1 1 h")
    yield Row("deit.embeddings.patch_embeddings.projection.weight", "h c p p'")
    yield Row("deit.embeddings.patch_embeddings.projection.bias", "h")
    yield Layers("deit.layers", lambda kind: vit.block_rows(m))
    yield from layer_norm("deit.layernorm")
    yield from linear("classifier", "C", "h", True)


def forward(m: Structure, pixel_values: Tensor, labels: Tensor | None = None) -> Tensor:
    return vit.classified(m, labels, lambda: model(m, pixel_values), lambda hidden: select(hidden, 1))


def model(m: Structure, pixels: Tensor) -> Tensor:
    with scope("deit"):
        pixels = like_weight(pixels, "embeddings.patch_embeddings.projection.weight")
        embedded = embeddings(m, pixels)
        x = embedded
        for _ in m.layers("layers"):
            x = m.layer(vit.block, x)
        x = weights.layer_norm(x, "layernorm")
        return x


def embeddings(m: Structure, pixels: Tensor) -> Tensor:
    with scope("embeddings"):
        x = vit.patches(pixels)
        cls_tokens = expand(weight("cls_token"), "b 1 h")
        distillation_tokens = expand(weight("distillation_token"), "b 1 h")
        x = cat([cls_tokens, distillation_tokens, x], "b s h", "two tokens and patches")
        x = add(x, weight("position_embeddings"))
        x = dropout(x, m.drops("embedding"))
        return x
