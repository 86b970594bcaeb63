"""Mistral 3 with Pixtral's tower, as transformers 5.24 runs it (models/mistral3/modeling_mistral3.py): squares of
patches are merged before they are projected into the text. nt tokens stand for all pictures."""

from __future__ import annotations

from collections.abc import Callable

from peakmem.architectures import llama, ministral3, pixtral
from peakmem.architectures.definition import Definition, linear, rms_norm
from peakmem.architectures.llava import TEXT, beside
from peakmem.architectures.pixtral import PATCHES
from peakmem.architectures.qwen_vl import reached
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.ops import activation, cast
from peakmem.estimate.picture_tokens import image_outputs, masked_scatter, placeholders, unfolded
from peakmem.estimate.positions import made
from peakmem.estimate.shapes import cat, split, swap, view
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, project, rms

MIRRORS = "transformers 5.24.0 models/mistral3/modeling_mistral3.py"
INPUTS = {"input_ids": ("b s", "int64"), "pixel_values": ("(b vi) c (my ms p) (mx ms' p')", "fp32", "pictures"),
          "labels": ("b s", "int64")}
SHARDS = False  # as LLaVA
PROJECTOR = "model.multi_modal_projector"


def define(m: Structure) -> Definition:
    yield from reached(pixtral.rows("model.vision_tower"), m.has("pictures"))
    yield from reached(projector_rows(m), m.has("pictures"))
    yield from beside(llama.define(m))


def projector_rows(m: Structure) -> Definition:
    yield from rms_norm(f"{PROJECTOR}.norm", "hi")
    yield from linear(f"{PROJECTOR}.patch_merger.merging_layer", "hi'", "(hi ms ms')")
    yield from linear(f"{PROJECTOR}.linear_1", "h", "hi", m.has("projector_bias"))
    yield from linear(f"{PROJECTOR}.linear_2", "h'", "h", m.has("projector_bias"))


def forward(m: Structure, input_ids: Tensor, pixel_values: Tensor | None = None,
            labels: Tensor | None = None) -> Tensor:
    returned = image_outputs(m)
    return causal_lm(m, lambda: model(m, input_ids, pixel_values, returned), f"{TEXT}.embed_tokens")


def model(m: Structure, ids: Tensor, pixels: Tensor | None, returned: list[Tensor]) -> Tensor:
    """Mistral3Model."""
    masks = tuple(kind for kind in ("full", "sliding") if kind in m.kinds())
    body: Callable[..., Tensor] | None = ministral3.block if m.has("scaled_queries") else None
    with scope(TEXT):
        inputs_embeds = embed(ids, "embed_tokens")
    if pixels is None:
        return llama.model(m, ids, body, masks, name=TEXT, inputs_embeds=inputs_embeds)
    with scope("model"):
        last, features = image_features(m, pixels)
        returned += [last, *features]
        image_features_ = cast(cat(features, "nt h", "features of all pictures"), inputs_embeds.dtype)
        special_image_mask = placeholders("b s")
        inputs_embeds = masked_scatter(inputs_embeds, special_image_mask, image_features_)
    x = llama.model(m, ids, body, masks, name=TEXT, inputs_embeds=inputs_embeds)
    del last, features, image_features_, special_image_mask
    return x


def image_features(m: Structure, pixels: Tensor) -> tuple[Tensor, list[Tensor]]:
    """get_image_features: the tower's last hidden states, and the projected features of each picture."""
    count = m.number("pictures")
    with scope("vision_tower"):
        last = pixtral.tower(m.tower("image"), pixels, count)
    with scope("multi_modal_projector"):
        features = projector(m, view(last, "tn hi"), count)
    sizes = made("(b vi) 2", "int64", "sides of the pictures")
    merged = made("(b vi) 2", "int64", "rows and columns of tokens")
    del sizes
    tokens = made("(b vi)", "int64", "tokens of each picture")
    del merged, tokens
    return last, split(view(features, features.dims), 0, [("my", "mx")] * count)


def projector(m: Structure, x: Tensor, count: int) -> Tensor:
    """Mistral3MultiModalProjector."""
    x = rms(x, "norm")
    with scope("patch_merger"):
        x = merger(x, count)
    hidden = project(x, "linear_1")
    hidden = activation(hidden, next(s.removeprefix("projector ") for s in m.switches if "projector " in s))
    hidden = project(hidden, "linear_2")
    return hidden


def merger(x: Tensor, count: int) -> Tensor:
    """Mistral3PatchMerger: the channels of (ms ms') patches side by side, picture by picture."""
    parts = []
    for part in split(x, 0, [PATCHES] * count):
        grid = swap(view(part, "(my ms) (mx ms') hi"), "hi (my ms) (mx ms')")
        grid = unfolded(view(grid, "1 hi (my ms) (mx ms')"), "1 (hi ms ms') (my mx)")
        parts.append(swap(view(grid, "(hi ms ms') (my mx)"), "(my mx) (hi ms ms')"))
    x = cat(parts, "nt (hi ms ms')", "merged patches")
    x = project(x, "merging_layer")
    del parts
    return x
