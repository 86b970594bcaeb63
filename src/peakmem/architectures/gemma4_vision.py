"""Gemma 4 with its tower, as transformers 5.24 runs it (models/gemma4/modeling_gemma4.py,
Gemma4ForConditionalGeneration), on text alone: the tower stands by, and no gradient reaches it."""

from __future__ import annotations

from collections.abc import Iterator

from peakmem.architectures import gemma4
from peakmem.architectures.definition import Definition, Layers, Row, buffer, linear, rms_norm
from peakmem.architectures.llava import TEXT, beside
from peakmem.estimate.losses import causal_lm
from peakmem.estimate.masks import layer_masks
from peakmem.estimate.positions import made, positions
from peakmem.estimate.structure import Structure
from peakmem.estimate.tape import Tensor, scope
from peakmem.estimate.weights import embed

MIRRORS = "transformers 5.24.0 models/gemma4/modeling_gemma4.py, Gemma4ForConditionalGeneration"


def define(m: Structure) -> Definition:
    yield Row("model.vision_tower.patch_embedder.position_embedding_table", "2 pp hi", reached=False)
    yield Row("model.vision_tower.patch_embedder.input_proj.weight", "hi (c p p')", "linear", reached=False)
    for name in ("inv_freq", "original_inv_freq"):
        yield from buffer(f"model.vision_tower.encoder.rotary_emb.{name}", "di/4", "fp32")
    yield Layers("model.vision_tower.encoder.layers", lambda kind: unreached(vision_rows(m)), "image")
    if m.has("standardized"):
        yield from buffer("model.vision_tower.std_bias", "hi")
        yield from buffer("model.vision_tower.std_scale", "hi")
    head = None
    for row in beside(gemma4.define(m)):
        if row.name.startswith("lm_head"):
            head = row
        else:
            yield row
    yield Row("model.embed_vision.embedding_projection.weight", "h hi", "linear", reached=False)
    if head is not None:
        yield head


def unreached(rows: Iterator[Row]) -> Iterator[Row]:
    return (row._replace(reached=False) for row in rows)


def vision_rows(m: Structure) -> Iterator[Row]:
    for name, outputs, inputs in (("self_attn.q_proj", "(ai di)", "hi"), ("self_attn.k_proj", "(ki di)", "hi"),
                                  ("self_attn.v_proj", "(ki di)", "hi"), ("self_attn.o_proj", "hi", "(ai di)")):
        yield from clippable(m, name, outputs, inputs)
    yield from rms_norm("self_attn.q_norm", "di")
    yield from rms_norm("self_attn.k_norm", "di")
    for name, outputs, inputs in (("gate_proj", "fi", "hi"), ("up_proj", "fi", "hi"), ("down_proj", "hi", "fi")):
        yield from clippable(m, f"mlp.{name}", outputs, inputs)
    for name in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
        yield from rms_norm(f"{name}_layernorm", "hi")


def clippable(m: Structure, name: str, outputs: str, inputs: str) -> Iterator[Row]:
    """Gemma4ClippableLinear: a linear layer, and the bounds of its input and output where it has some."""
    yield from linear(f"{name}.linear", outputs, inputs)
    if m.has("clipped"):
        for bound in ("input_min", "input_max", "output_min", "output_max"):
            yield from buffer(f"{name}.{bound}", "()")


def forward(m: Structure, ids: Tensor) -> Tensor:
    return causal_lm(m, lambda: model(m, ids), f"{TEXT}.embed_tokens")


def model(m: Structure, ids: Tensor) -> Tensor:
    """Gemma4Model: places of pictures, films and sounds are looked for, and none is found."""
    with scope("model"):
        image, video, audio = (made("b s", "bool", f"places of {what}") for what in ("pictures", "films", "sounds"))
        places = made("b s", "bool", "places of pictures and films")
        places = made("b s", "bool", "places of all of them")
        llm_ids = made("b s", "int64", "copy of the ids")
        padding = made("", "int64", "padding")
        llm_ids = made("b s", "int64", "ids of text")
        del padding
    with scope(TEXT):
        inputs_embeds = embed(llm_ids, "embed_tokens", scaled=True)
    with scope("model"):
        position_ids = positions()
        masks = layer_masks(m, inputs_embeds.dtype, gemma4.words(m))
    with scope(TEXT):
        x = gemma4.decoder(m, inputs_embeds, masks, position_ids)
        del image, video, audio, places, llm_ids, inputs_embeds
        return x
