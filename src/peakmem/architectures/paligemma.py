"""PaliGemma, as transformers 5.24 runs it (models/paligemma/modeling_paligemma.py): SigLIP's patches are projected into
Gemma's text; picture and prompt look at one another both ways. Positions begin with one."""

from __future__ import annotations

from peakmem.architectures import gemma, siglip
from peakmem.architectures.definition import Definition, linear
from peakmem.architectures.llava import TEXT, beside
from peakmem.architectures.qwen_vl import reached
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.masks import layer_masks
from peakmem.estimate.ops import cast
from peakmem.estimate.picture_masks import prefix_mask
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
    yield from beside(gemma.define(m))


def forward(m: Structure, input_ids: Tensor, pixel_values: Tensor | None = None, token_type_ids: Tensor | None = None,
            labels: Tensor | None = None) -> Tensor:
    returned = image_outputs(m)
    return causal_lm(m, lambda: model(m, input_ids, pixel_values, returned), f"{TEXT}.embed_tokens")


def model(m: Structure, ids: Tensor, pixels: Tensor | None, returned: list[Tensor]) -> Tensor:
    """PaliGemmaModel."""
    with scope(TEXT):
        inputs_embeds = embed(ids, "embed_tokens", scaled=True)
    with scope("model"):
        position_ids = positions()
        position_ids = made("s", "int64", "position ids from one on")
        if pixels is None:
            mask = layer_masks(m, inputs_embeds.dtype, ("full",))["full"]
            return gemma.model(m, ids, None, ("full",), "language_model", inputs_embeds, (mask, position_ids))
        features = image_features(m, pixels)
        returned += features
        image_features_ = cast(features[1], inputs_embeds.dtype)
        special_image_mask = placeholders("b s")
        inputs_embeds = masked_scatter(inputs_embeds, special_image_mask, image_features_)
        groups, mask = prefix_mask(m, inputs_embeds.dtype)
        x = gemma.model(m, ids, None, ("full",), "language_model", inputs_embeds, (mask, position_ids))
    del features, image_features_, special_image_mask, groups
    return x


def image_features(m: Structure, pixels: Tensor) -> list[Tensor]:
    """get_image_features: the tower's last hidden states, and their projection."""
    with scope("vision_tower"):
        last = siglip.tower(m.tower("image"), pixels)
    with scope("multi_modal_projector"):
        return [last, project(last, "linear")]
