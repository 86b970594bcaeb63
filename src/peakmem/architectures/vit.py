"""ViT for image classification, as transformers 5.24 runs it (models/vit/modeling_vit.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from peakmem.architectures import picture_classifier
from peakmem.architectures.definition import Definition, Layers, Row, layer_norm, linear
from peakmem.architectures.picture_classifier import GENERATES, INPUTS, LOSSES
from peakmem.estimate import weights
from peakmem.estimate.attention import attend
from peakmem.estimate.ops import activation, add, dropout
from peakmem.estimate.picture_tokens import like_weight
from peakmem.estimate.shapes import cat, expand, select, split_heads, swap
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import convolution, project

MIRRORS = "transformers 5.24.0 models/vit/modeling_vit.py"
__all__ = ["GENERATES", "INPUTS", "LOSSES", "MIRRORS", "define", "forward"]


def define(m: Structure) -> Definition:
    yield Row("vit.embeddings.cls_token", "1 1 h")
    yield Row("vit.embeddings.position_embeddings", "1 s h")
    yield Row("vit.embeddings.patch_embeddings.projection.weight", "h c p p'")
    yield Row("vit.embeddings.patch_embeddings.projection.bias", "h")
    yield Layers("vit.layers", lambda kind: block_rows(m))
    yield from layer_norm("vit.layernorm")
    yield from linear("classifier", "C", "h", True)


def block_rows(m: Structure) -> Iterator[Row]:
    yield from attention_rows(m)
    yield from layer_norm("layernorm_before")
    yield from layer_norm("layernorm_after")
    yield from mlp_rows()


def attention_rows(m: Structure) -> Iterator[Row]:
    for name in ("q_proj", "k_proj", "v_proj"):
        yield from linear(f"attention.{name}", "(a d)", "h", m.has("attention_bias"))
    yield from linear("attention.o_proj", "h", "(a d)", True)


def mlp_rows() -> Iterator[Row]:
    yield from linear("mlp.fc1", "f", "h", True)
    yield from linear("mlp.fc2", "h", "f", True)


def forward(m: Structure, pixel_values: Tensor, labels: Tensor | None = None) -> Tensor:
    return classified(m, labels, lambda: model(m, pixel_values), lambda hidden: select(hidden, 1))


def classified(m: Structure, labels: Tensor | None, run: Callable[[], Tensor],
               pool: Callable[[Tensor], Tensor]) -> Tensor:
    """XxxForImageClassification: `run` gives the last hidden states, `pool` what the classifier reads of them."""
    def logits() -> tuple[Tensor, ...]:
        hidden = run()
        pooled = pool(hidden)
        return project(pooled, "classifier"), hidden, pooled

    return picture_classifier.classified(m, logits, labels)


def model(m: Structure, pixels: Tensor) -> Tensor:
    with scope("vit"):
        pixels = like_weight(pixels, "embeddings.patch_embeddings.projection.weight")
        embedded = embeddings(m, pixels)
        x = embedded
        for _ in m.layers("layers"):
            x = m.layer(block, x)
        x = weights.layer_norm(x, "layernorm")
        return x


def embeddings(m: Structure, pixels: Tensor) -> Tensor:
    with scope("embeddings"):
        x = patches(pixels)
        cls_tokens = expand(weights.weight("cls_token"), "b 1 h")
        x = cat([cls_tokens, x], "b s h", "class token and patches")
        x = add(x, weights.weight("position_embeddings"))
        x = dropout(x, m.drops("embedding"))
        return x


def patches(pixels: Tensor) -> Tensor:
    """A convolution whose stride is its kernel; the N patches then come before the channels."""
    with scope("patch_embeddings"):
        pixels = like_weight(pixels, "projection.weight")
        return swap(convolution(pixels, "projection", "b h N"), "b N h")


def block(m: Structure, x: Tensor) -> Tensor:
    residual = x
    x = weights.layer_norm(x, "layernorm_before")
    x, _ = attention(m, x)
    x = dropout(x, m.drops("hidden"))
    x = add(x, residual)
    residual = x
    x = weights.layer_norm(x, "layernorm_after")
    x = mlp(m, x)
    x = dropout(x, m.drops("hidden"))
    x = add(x, residual)
    return x


def attention(m: Structure, x: Tensor, softmax_in: str = "fp32") -> tuple[Tensor, Tensor | None]:
    with scope("attention"):
        q = split_heads(project(x, "q_proj"), "b a s d")
        k = split_heads(project(x, "k_proj"), "b a s d")
        v = split_heads(project(x, "v_proj"), "b a s d")
        out, probabilities = attend(m, q, k, v, None, softmax_in, causal=False)
        out = project(out, "o_proj")
        return out, probabilities


def mlp(m: Structure, x: Tensor) -> Tensor:
    with scope("mlp"):
        wide = project(x, "fc1")
        wide = activation(wide, m.activation)
        return project(wide, "fc2")
