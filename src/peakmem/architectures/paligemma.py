"""PaliGemma 1 and 2, as transformers 5.24 runs them (models/paligemma/modeling_paligemma.py): SigLIP's patches are
projected into the text of Gemma 1 or 2; picture and prompt look at one another both ways. Positions begin with one."""

from __future__ import annotations

from peakmem.architectures import gemma, gemma2, siglip
from peakmem.architectures.definition import Definition, linear
from peakmem.architectures.llava import TEXT, beside
from peakmem.architectures.qwen_vl import reached
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.masks import layer_masks
from peakmem.estimate.ops import cast
from peakmem.estimate.picture_masks import prefix_masks
from peakmem.estimate.picture_tokens import image_outputs, masked_scatter, placeholders
from peakmem.estimate.positions import made, positions
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, project

MIRRORS = "transformers 5.24.0 models/paligemma/modeling_paligemma.py"
INPUTS = {"input_ids": ("b s", "int64"), "pixel_values": ("b c i i'", "", "pictures"),
          "token_type_ids": ("b s", "int64", "pictures"), "labels": ("b s", "int64")}
SHARDS = False  # as LLaVA


def define(m: Structure) -> Definition:
    yield from reached(siglip.rows("model.vision_tower"), m.has("pictures"))
    yield from reached(linear("model.multi_modal_projector.linear", "h", "hi", True), m.has("pictures"))
    yield from beside((gemma2 if second(m) else gemma).define(m))


def second(m: Structure) -> bool:
    """Whether the text is Gemma 2's."""
    return m.has("sandwich_norms")


def forward(m: Structure, input_ids: Tensor, pixel_values: Tensor | None = None, token_type_ids: Tensor | None = None,
            labels: Tensor | None = None) -> Tensor:
    returned = image_outputs(m)
    return causal_lm(m, lambda: model(m, input_ids, pixel_values, returned), f"{TEXT}.embed_tokens")


def model(m: Structure, ids: Tensor, pixels: Tensor | None, returned: list[Tensor]) -> Tensor:
    """PaliGemmaModel."""
    kinds = ("full", "sliding") if second(m) and m.has("window") else ("full",)
    body = gemma2.block if second(m) else None
    with scope(TEXT):
        inputs_embeds = embed(ids, "embed_tokens", scaled=True)
    with scope("model"):
        position_ids = positions()
        position_ids = made("s", "int64", "position ids from one on")
        if pixels is None:
            masks = layer_masks(m, inputs_embeds.dtype, kinds)
            return gemma.model(m, ids, body, kinds, "language_model", inputs_embeds, (masks, position_ids))
        features = image_features(m, pixels)
        returned += features
        image_features_ = cast(features[1], inputs_embeds.dtype)
        special_image_mask = placeholders("b s")
        inputs_embeds = masked_scatter(inputs_embeds, special_image_mask, image_features_)
        groups, masks = prefix_masks(m, inputs_embeds.dtype, kinds)
        x = gemma.model(m, ids, body, kinds, "language_model", inputs_embeds, (masks, position_ids))
    del features, image_features_, special_image_mask, groups
    return x


def image_features(m: Structure, pixels: Tensor) -> list[Tensor]:
    """get_image_features: the tower's last hidden states, and their projection."""
    with scope("vision_tower"):
        last = siglip.tower(m.tower("image"), pixels)
    with scope("multi_modal_projector"):
        return [last, project(last, "linear")]
