"""LLaVA 1.5, as transformers 5.24 runs it (models/llava/modeling_llava.py): CLIP's tower looks at one picture for each
sequence, whose features replace the embeddings of as many tokens. Without pictures the tower stands by."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from peakmem.architectures import clip, llama
from peakmem.architectures.clip import IMAGE, vision_rows
from peakmem.architectures.definition import Definition, Layers, Row, linear
from peakmem.estimate import weights
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.ops import activation, cast
from peakmem.estimate.picture_tokens import image_outputs, masked_scatter, placeholders, rows_joined
from peakmem.estimate.shapes import piece, select
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed, project

MIRRORS = "transformers 5.24.0 models/llava/modeling_llava.py"
INPUTS = {"input_ids": ("b s", "int64"), "pixel_values": ("b c i i'", "", "pictures"), "labels": ("b s", "int64")}
SHARDS = False  # a unit that no gradient reaches is gathered for nothing, and kept until backward ends
TEXT = "model.language_model"


def define(m: Structure) -> Definition:
    yield from unread(m, vision_rows("model.vision_tower"))
    for row in projector_rows(m):
        yield row._replace(reached=m.has("pictures"))
    yield from beside(llama.define(m))


def projector_rows(m: Structure) -> Iterator[Row]:
    yield from linear("model.multi_modal_projector.linear_1", "h", "hi", m.has("projector_bias"))
    yield from linear("model.multi_modal_projector.linear_2", "h", "h", m.has("projector_bias"))


def unread(m: Structure, rows: Definition) -> Definition:
    """The tower's rows: no gradient reaches the layers behind the one whose output is taken, nor the norm of the pooled
    token; without pictures it reaches none."""
    for row in rows:
        if isinstance(row, Layers):
            yield row._replace(block=partial(rows_of_layer, m, row.block))
        else:
            yield row._replace(reached=m.has("pictures") and "post_layernorm" not in row.name)


def rows_of_layer(m: Structure, block: Callable[[str], Iterator[Row]], kind: str) -> Iterator[Row]:
    return (row._replace(reached=m.has("pictures") and kind == "image") for row in block(kind))


def beside(rows: Definition, text: str = TEXT) -> Iterator[Row | Layers]:
    """A decoder's rows where it is a part of another model, there called `text`; its head stays outside."""
    for row in rows:
        name = row.name if row.name.startswith("lm_head") else row.name.replace("model", text, 1)
        yield row._replace(name=name)


def forward(m: Structure, input_ids: Tensor, pixel_values: Tensor | None = None,
            labels: Tensor | None = None) -> Tensor:
    returned = image_outputs(m)
    return causal_lm(m, lambda: model(m, input_ids, pixel_values, returned), f"{TEXT}.embed_tokens")


def model(m: Structure, ids: Tensor, pixels: Tensor | None, returned: list[Tensor]) -> Tensor:
    """LlavaModel."""
    masks = tuple(kind for kind in ("full", "sliding") if kind in m.kinds())
    if pixels is None:
        return llama.model(m, ids, masked=masks, name=TEXT)
    with scope(TEXT):
        inputs_embeds = embed(ids, "embed_tokens")
    with scope("model"):
        features = image_features(m, pixels, returned)
        image_features_ = cast(rows_joined(features), inputs_embeds.dtype)
        del features
        special_image_mask = placeholders("b s")
        inputs_embeds = masked_scatter(inputs_embeds, special_image_mask, image_features_)
    x = llama.model(m, ids, masked=masks, name=TEXT, inputs_embeds=inputs_embeds)
    del special_image_mask, image_features_, inputs_embeds
    return x


def image_features(m: Structure, pixels: Tensor, returned: list[Tensor]) -> Tensor:
    """get_image_features: the projected hidden states of one layer, without the class token."""
    with scope("vision_tower"):
        last, chosen, pooled = tower(m.tower("image"), pixels)
    returned += [last, chosen]
    if not m.has("class_token"):
        chosen = piece(chosen, 1, "N")
    with scope("multi_modal_projector"):
        features = projector(m, chosen)
    returned.append(features)
    del pooled
    return features


def projector(m: Structure, x: Tensor) -> Tensor:
    x = project(x, "linear_1")
    x = activation(x, next(switch.removeprefix("projector ") for switch in m.switches if "projector " in switch))
    x = project(x, "linear_2")
    return x


def tower(m: Structure, pixels: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """CLIPVisionModel: the last hidden states, those that a hook keeps, the pooled token, which nobody reads."""
    hidden = clip.image_embeddings(pixels)
    hidden = weights.layer_norm(hidden, "pre_layrnorm")
    x, chosen = hidden, None
    with scope("encoder"):
        for kind in m.layers("layers", "image"):
            chosen = x if chosen is None and kind != "image" else chosen
            x = m.layer(clip.block, x, None, IMAGE)
    pooled = select(x, 1)
    pooled = weights.layer_norm(pooled, "post_layernorm")
    return x, x if chosen is None else chosen, pooled
