"""DINOv2 with a classifier, with registers or without, as transformers 5.24 runs it.

models/dinov2/modeling_dinov2.py, models/dinov2_with_registers/modeling_dinov2_with_registers.py. ViT whose branches are
scaled, channel by channel; the classifier reads the class token and the mean of the patches. ct tokens, the registers
among them, stand before the patches.
"""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures import llama, vit
from peakmem.architectures.definition import Definition, Layers, Row, gated_rows, layer_norm, linear
from peakmem.architectures.vit import GENERATES, INPUTS, LOSSES
from peakmem.estimate import weights
from peakmem.estimate.ops import add, dropout, mul
from peakmem.estimate.pictures import mean_over
from peakmem.estimate.shapes import cat, expand, piece, select
from peakmem.estimate.stochastic_depth import drop_path
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope

MIRRORS = "transformers 5.24.0 models/dinov2/modeling_dinov2.py"
__all__ = ["GENERATES", "INPUTS", "LOSSES", "MIRRORS", "define", "forward"]


def prefix(m: Structure) -> str:
    return "dinov2_with_registers" if m.has("registers") else "dinov2"


def define(m: Structure) -> Definition:
    name = prefix(m)
    yield Row(f"{name}.embeddings.cls_token", "1 1 h")
    if m.has("mask_token"):
        yield Row(f"{name}.embeddings.mask_token", "1 h", reached=False)
    yield Row(f"{name}.embeddings.position_embeddings", "1 N+1 h" if m.has("registers") else "1 s h")
    if m.has("registers"):
        yield Row(f"{name}.embeddings.register_tokens", "1 ct-1 h")
    yield Row(f"{name}.embeddings.patch_embeddings.projection.weight", "h c p p'")
    yield Row(f"{name}.embeddings.patch_embeddings.projection.bias", "h")
    yield Layers(f"{name}.encoder.layer", lambda kind: block_rows(m))
    yield from layer_norm(f"{name}.layernorm")
    if not bare(m):
        yield from linear("classifier", "C", "(2 h)", True)


def block_rows(m: Structure) -> Iterator[Row]:
    yield from layer_norm("norm1")
    yield from vit.attention_rows(m)
    yield Row("layer_scale1.lambda1", "h")
    yield from layer_norm("norm2")
    yield from gated_rows(True) if m.has("gated") else vit.mlp_rows()
    yield Row("layer_scale2.lambda1", "h")


def bare(m: Structure) -> bool:
    """Whether Dinov2Model itself runs, which has no classifier."""
    return m.has("bare") and m.run == "inference"


def forward(m: Structure, pixel_values: Tensor, labels: Tensor | None = None) -> Tensor:
    if bare(m):
        return model(m, pixel_values)
    return vit.classified(m, labels, lambda: model(m, pixel_values), pooled)


def pooled(hidden: Tensor) -> Tensor:
    cls_token = select(hidden, 1)
    patch_tokens = piece(hidden, 1, "N")
    return cat([cls_token, mean_over(patch_tokens, 1)], "b (2 h)", "class token and mean of the patches")


def model(m: Structure, pixels: Tensor) -> Tensor:
    with scope(prefix(m)):
        embedded = with_registers(m, pixels) if m.has("registers") else vit.embeddings(m, pixels)
        encoded = encoder(m, embedded)
        hidden = weights.layer_norm(encoded, "layernorm")
        del embedded, encoded
        return hidden


def with_registers(m: Structure, pixels: Tensor) -> Tensor:
    """Registers have no positions: they come behind those of class token and patches."""
    with scope("embeddings"):
        x = vit.patches(pixels)
        cls_tokens = expand(weights.weight("cls_token"), "b 1 h")
        x = cat([cls_tokens, x], "b N+1 h", "class token and patches")
        x = add(x, weights.weight("position_embeddings"))
        x = cat([piece(x, 1, "1"), expand(weights.weight("register_tokens"), "b ct-1 h"), piece(x, 1, "N")], "b s h",
                "class token, registers and patches")
        x = dropout(x, m.drops("embedding"))
        return x


def encoder(m: Structure, x: Tensor) -> Tensor:
    with scope("encoder"):
        for _ in m.layers("layer"):
            x = m.layer(block, x)
        return x


def block(m: Structure, x: Tensor) -> Tensor:
    residual = x
    x = weights.layer_norm(x, "norm1")
    x, probabilities = vit.attention(m, x, softmax_in="own")
    x = layer_scale(x, "layer_scale1")
    x = add(drop_path(m, x), residual)
    residual = x
    x = weights.layer_norm(x, "norm2")
    x = llama.mlp(m, x) if m.has("gated") else vit.mlp(m, x)
    x = layer_scale(x, "layer_scale2")
    x = add(drop_path(m, x), residual)
    del probabilities
    return x


def layer_scale(x: Tensor, name: str) -> Tensor:
    with scope(name):
        return mul(x, weights.weight("lambda1"), "output, scaled")
