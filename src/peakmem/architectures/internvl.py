"""InternVL, as transformers 5.24 runs it (models/internvl/modeling_internvl.py): every tile is looked at by itself, and
(qm qm') patches become one token. vi tiles of a sequence; (qt qt') tokens of a tile."""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures import clip, llama
from peakmem.architectures.definition import Definition, Layers, Row, layer_norm, linear, rms_norm
from peakmem.architectures.llava import TEXT, beside
from peakmem.architectures.qwen_vl import reached
from peakmem.estimate import weights
from peakmem.estimate.attention import attend
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.ops import activation, add, cast, dropout, mul
from peakmem.estimate.picture_tokens import image_outputs, masked_scatter, placeholders
from peakmem.estimate.shapes import cat, contiguous, expand, piece, reshape, split_heads, swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, current, scope
from peakmem.estimate.weights import convolution, embed, project, rms, weight

MIRRORS = "transformers 5.24.0 models/internvl/modeling_internvl.py"
INPUTS = {"input_ids": ("b s", "int64"), "pixel_values": ("(b vi) c i i'", "", "pictures"), "labels": ("b s", "int64")}
SHARDS = False  # as LLaVA

PATCHES = ("qt", "qm", "qt'", "qm'")


def define(m: Structure) -> Definition:
    for row in reached(vision_rows(m.tower("image")), m.has("pictures")):
        yield row._replace(reached=False) if isinstance(row, Row) and row.name.endswith("mask_token") else row
    yield from reached(projector_rows(), m.has("pictures"))
    yield from beside(llama.define(m))


def vision_rows(m: Structure) -> Definition:
    yield Row("model.vision_tower.embeddings.cls_token", "1 1 hi")
    if m.has("mask_token"):
        yield Row("model.vision_tower.embeddings.mask_token", "1 1 hi")
    if m.has("position_table"):
        yield Row("model.vision_tower.embeddings.position_embeddings", "1 si hi")
    yield Row("model.vision_tower.embeddings.patch_embeddings.projection.weight", "hi c p p'")
    yield Row("model.vision_tower.embeddings.patch_embeddings.projection.bias", "hi")
    yield Layers("model.vision_tower.encoder.layer", lambda kind: block_rows(m), "image")
    if m.has("last_norm"):
        yield from layer_norm("model.vision_tower.layernorm", "hi")


def block_rows(m: Structure) -> Iterator[Row]:
    yield Row("lambda_1", "hi")
    yield Row("lambda_2", "hi")
    for part in "qkv":
        yield from linear(f"attention.{part}_proj", "(ai di)", "hi", m.has("attention_bias"))
    yield from linear("attention.projection_layer", "hi", "hi'", True)
    if m.has("qk_norm"):
        yield from rms_norm("attention.q_norm", "(ai di)")
        yield from rms_norm("attention.k_norm", "(ai di)")
    yield from linear("mlp.fc1", "fi", "hi", True)
    yield from linear("mlp.fc2", "hi", "fi", True)
    for name in ("layernorm_before", "layernorm_after"):
        yield from rms_norm(name, "hi") if m.has("rms_norms") else layer_norm(name, "hi")


def projector_rows() -> Definition:
    yield from layer_norm("model.multi_modal_projector.layer_norm", "(qm qm' hi)")
    yield from linear("model.multi_modal_projector.linear_1", "h", "(qm qm' hi)", True)
    yield from linear("model.multi_modal_projector.linear_2", "h", "h'", True)


def forward(m: Structure, input_ids: Tensor, pixel_values: Tensor | None = None,
            labels: Tensor | None = None) -> Tensor:
    returned = image_outputs(m)
    return causal_lm(m, lambda: model(m, input_ids, pixel_values, returned), f"{TEXT}.embed_tokens")


def model(m: Structure, ids: Tensor, pixels: Tensor | None, returned: list[Tensor]) -> Tensor:
    """InternVLModel."""
    masks = ("full", "sliding") if "sliding" in m.kinds() else ("full",)
    if pixels is None:
        return llama.model(m, ids, masked=masks, name=TEXT)
    with scope(TEXT):
        inputs_embeds = embed(ids, "embed_tokens")
    with scope("model"):
        features = image_features(m, pixels)
        returned += features
        image_features_ = cast(features[-1], inputs_embeds.dtype)
        special_image_mask = placeholders("b s")
        inputs_embeds = masked_scatter(inputs_embeds, special_image_mask, image_features_)
    x = llama.model(m, ids, masked=masks, name=TEXT, inputs_embeds=inputs_embeds)
    del features, special_image_mask, image_features_
    return x


def image_features(m: Structure, pixels: Tensor) -> list[Tensor]:
    """get_image_features: what the tower hands out, and what the projector makes of its last hidden states."""
    with scope("vision_tower"):
        pixels = cast(pixels, weight("embeddings.cls_token").dtype)
        hidden, last = tower(m.tower("image"), pixels)
    x = piece(last, 1, PATCHES)
    x = shuffled(reshape(x, "(b vi) (qt qm) (qt' qm') hi"))
    x = reshape(x, "(b vi) (qt qt') (qm qm' hi)")
    with scope("multi_modal_projector"):
        x = projector(m, x)
    del pixels
    return [hidden, last, x]


def shuffled(x: Tensor) -> Tensor:
    """pixel_shuffle: channels of (qm qm') patches side by side, first of a row, then of rows."""
    x = view(x, "(b vi) (qt qm) qt' (qm' hi)")
    x = contiguous(swap(x, "(b vi) qt' (qt qm) (qm' hi)"))
    x = view(x, "(b vi) qt' qt (qm qm' hi)")
    x = contiguous(swap(x, "(b vi) qt qt' (qm qm' hi)"))
    return x


def projector(m: Structure, x: Tensor) -> Tensor:
    """InternVLMultiModalProjector."""
    x = weights.layer_norm(x, "layer_norm")
    x = project(x, "linear_1")
    x = activation(x, next(switch.removeprefix("projector ") for switch in m.switches if "projector " in switch))
    x = project(x, "linear_2")
    return x


def tower(m: Structure, pixels: Tensor) -> tuple[Tensor, Tensor]:
    """InternVLVisionModel: the last layer's hidden states, which a hook keeps, and the last of all."""
    embedded = embeddings(m, pixels)
    hidden = embedded
    with scope("encoder"):
        for _ in m.layers("layer", "image"):
            hidden = m.layer(block, hidden)
    last = weights.layer_norm(hidden, "layernorm") if m.has("last_norm") else hidden
    del embedded
    return hidden, last


def embeddings(m: Structure, pixels: Tensor) -> Tensor:
    with scope("embeddings"):
        with scope("patch_embeddings"):
            x = swap(convolution(pixels, "projection", "(b vi) hi (qt qm qt' qm')"), "(b vi) (qt qm qt' qm') hi")
        if current().trains_inputs and not x.needs_grad:
            x = weights.leaf(x)
        cls_tokens = expand(weight("cls_token"), "(b vi) 1 hi")
        x = cat([cls_tokens, x], "(b vi) si hi", "class token and patches")
        if m.has("position_table"):
            x = add(x, weight("position_embeddings"))
        x = dropout(x, m.drops("hidden"))
        return x


def block(m: Structure, x: Tensor) -> Tensor:
    norm = rms if m.has("rms_norms") else weights.layer_norm
    attended, _ = attention(m, norm(x, "layernorm_before"))
    attended = mul(weight("lambda_1"), attended, "attention, scaled")
    x = add(attended, x)
    out = norm(x, "layernorm_after")
    out = clip.mlp(m, out)
    out = dropout(out, m.drops("hidden"))
    out = mul(weight("lambda_2"), out, "output, scaled")
    out = add(out, x)
    del attended, _
    return out


def attention(m: Structure, x: Tensor) -> tuple[Tensor, Tensor | None]:
    with scope("attention"):
        q, k, v = (project(x, f"{part}_proj") for part in "qkv")
        if m.has("qk_norm"):
            q = rms(q, "q_norm")
            k = rms(k, "k_norm")
        shape = "(b vi) ai si di"
        q, k, v = split_heads(q, shape), split_heads(k, shape), split_heads(v, shape)
        out, probabilities = attend(m, q, k, v, None, "own", causal=False)
        out = project(out, "projection_layer")
        return out, probabilities
