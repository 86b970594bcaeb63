"""Gemma 3 with its tower, as transformers 5.24 runs it (models/gemma3/modeling_gemma3.py,
Gemma3ForConditionalGeneration): SigLIP's patches are averaged to (gt gt') tokens, which look at one another both ways.
"""

from __future__ import annotations

from peakmem.architectures import gemma3, siglip
from peakmem.architectures.definition import Definition, Row, rms_norm
from peakmem.architectures.llava import TEXT, beside
from peakmem.architectures.qwen_vl import reached
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.masks import layer_masks
from peakmem.estimate.ops import cast
from peakmem.estimate.picture_masks import two_way_masks
from peakmem.estimate.picture_tokens import average_pool, image_outputs, masked_scatter, placeholders
from peakmem.estimate.shapes import contiguous, reshape, swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, product, rms_plus_one, weight

MIRRORS = "transformers 5.24.0 models/gemma3/modeling_gemma3.py, Gemma3ForConditionalGeneration"
INPUTS = {"input_ids": ("b s", "int64"), "pixel_values": ("b c i i'", "", "pictures"),
          "token_type_ids": ("b s", "int64", "pictures"), "labels": ("b s", "int64")}
SHARDS = False  # as LLaVA


def define(m: Structure) -> Definition:
    yield from reached(siglip.rows("model.vision_tower"), m.has("pictures"))
    yield Row("model.multi_modal_projector.mm_input_projection_weight", "hi h", reached=m.has("pictures"))
    for row in rms_norm("model.multi_modal_projector.mm_soft_emb_norm", "hi"):
        yield row._replace(reached=m.has("pictures"))
    yield from beside(gemma3.define(m))


def forward(m: Structure, input_ids: Tensor, pixel_values: Tensor | None = None, token_type_ids: Tensor | None = None,
            labels: Tensor | None = None) -> Tensor:
    returned = image_outputs(m)
    return causal_lm(m, lambda: model(m, input_ids, pixel_values, returned), f"{TEXT}.embed_tokens")


def model(m: Structure, ids: Tensor, pixels: Tensor | None, returned: list[Tensor]) -> Tensor:
    """Gemma3Model."""
    with scope(TEXT):
        inputs_embeds = embed(ids, "embed_tokens", scaled=True)
    if pixels is None:
        with scope("model"):
            masks = layer_masks(m, inputs_embeds.dtype, ("full", "sliding"), packed=False)
        return gemma3.model(m, ids, TEXT, inputs_embeds, masks)
    with scope("model"):
        features = image_features(m, pixels)
        returned += features
        image_features_ = cast(features[1], inputs_embeds.dtype)
        special_image_mask = placeholders("b s")
        inputs_embeds = masked_scatter(inputs_embeds, special_image_mask, image_features_)
        block_sequence_ids, masks = two_way_masks(m, inputs_embeds.dtype)
    x = gemma3.model(m, ids, TEXT, inputs_embeds, masks)
    del features, image_features_, special_image_mask, block_sequence_ids
    return x


def image_features(m: Structure, pixels: Tensor) -> list[Tensor]:
    """get_image_features: the tower's last hidden states, and what the projector makes of them."""
    with scope("vision_tower"):
        last = siglip.tower(m.tower("image"), pixels)
    with scope("multi_modal_projector"):
        return [last, projector(last)]


def projector(x: Tensor) -> Tensor:
    """Gemma3MultiModalProjector."""
    reshaped = contiguous(reshape(swap(x, "b hi (gi gi')"), "b hi gi gi'"))
    pooled = average_pool(reshaped, "b hi gt gt'")
    pooled = swap(view(pooled, "b hi (gt gt')"), "b (gt gt') hi")
    normed = rms_plus_one(pooled, "mm_soft_emb_norm")
    projected = product(normed, weight("mm_input_projection_weight"), None, transposed=True)
    result = cast(projected, x.dtype)
    del reshaped
    return result
